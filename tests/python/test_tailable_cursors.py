"""Tails of capped collections: every document once and in order; places that are lost; collections that go away."""
import threading

import pytest
from pymongo import CursorType


@pytest.mark.parametrize("inserters", [2, 4, 16])
def test_a_tail_shows_every_document_of_many_inserters_once(db, inserters):
    each, readers = 1600 // inserters, 3
    c = db.create_collection("tail", capped=True, size=1 << 24)
    c.insert_one({"_id": "first"})
    seen = [[] for _ in range(readers)]

    def read(out):
        cursor = c.find(cursor_type=CursorType.TAILABLE_AWAIT)
        for document in cursor:
            out.append(document["_id"])
            if len(out) == 1 + inserters * each or document["_id"] == "last":
                return

    def insert(number):
        for i in range(each):
            c.insert_one({"_id": number * each + i})

    reading = [threading.Thread(target=read, args=(out,)) for out in seen]
    writing = [threading.Thread(target=insert, args=(number,)) for number in range(inserters)]
    for thread in reading + writing:
        thread.start()
    for thread in writing:
        thread.join()
    # Who has missed a document does not wait for it for ever.
    c.insert_one({"_id": "last"})
    for thread in reading:
        thread.join()
    stored = [document["_id"] for document in c.find()][:-1]
    assert len(stored) == 1 + inserters * each
    for out in seen:
        assert out[: len(stored)] == stored
