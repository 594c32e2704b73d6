"""What a client has sent is done, though it hangs up without waiting for the reply: writes, as on mongod, to the end. A
read that nobody waits for ends: test_endings.py."""
import os
import socket
import time

import bson
import pytest
import server
from bson import Binary, Code, Int64
from raw import Raw, message
from waiting import until

MORE_TO_COME = 1 << 1


def leave(address, *messages):
    with socket.create_connection(address) as leaver:
        leaver.sendall(b"".join(messages))


@pytest.mark.parametrize("count,size", [(1, 10), (100, 10), (1000, 10), (3000, 10), (300, 3000), (20, 200_000)])
def test_writes_that_are_not_acknowledged_are_done(client, c, count, size):
    document = {"pad": "x" * size}
    write = message({"insert": c.name, "documents": [document], "writeConcern": {"w": 0}, "$db": c.database.name}, MORE_TO_COME)
    leave(client.address, *[write] * count)
    until(lambda: c.count_documents({}) == count)


def test_writes_of_several_kinds_follow_each_other(client, c):
    place = {"$db": c.database.name, "writeConcern": {"w": 0}}
    documents = [{"_id": i, "pad": "x" * 1000} for i in range(20_000)]
    leave(client.address,
          message({"insert": c.name, **place}, MORE_TO_COME, documents=b"".join(map(bson.encode, documents))),
          message({"update": c.name, "updates": [{"q": {}, "u": {"$set": {"n": 1}}, "multi": True}], **place}, MORE_TO_COME),
          message({"delete": c.name, "deletes": [{"q": {"_id": {"$gte": 10_000}}, "limit": 0}], **place}, MORE_TO_COME),
          message({"insert": c.name, "documents": [{"_id": "last"}], **place}, MORE_TO_COME))
    until(lambda: c.count_documents({"_id": "last"}) == 1)
    assert c.count_documents({"n": 1}) == c.count_documents({}) - 1 == 10_000


SLOW = {"$where": "sleep(20) || true"}
EACH = {"$function": {"body": "function(x) { sleep(20); return x }", "args": ["$_id"], "lang": "js"}}
COUNT = 40
#: Each takes longer than its client stays: the command, and what shows that it was done.
LONG = {
    "update": ({"update": "c", "updates": [{"q": SLOW, "u": {"$set": {"n": 1}}, "multi": True}]},
               lambda db: db.c.count_documents({"n": 1}) == COUNT),
    "updates": ({"update": "c", "updates": [{"q": {"_id": i, **SLOW}, "u": {"$set": {"n": 1}}} for i in range(COUNT)]},
                lambda db: db.c.count_documents({"n": 1}) == COUNT),
    "update by a pipeline": ({"update": "c", "updates": [{"q": {}, "u": [{"$set": {"n": EACH}}], "multi": True}]},
                             lambda db: db.c.count_documents({"n": {"$exists": True}}) == COUNT),
    "delete": ({"delete": "c", "deletes": [{"q": SLOW, "limit": 0}]}, lambda db: db.c.count_documents({}) == 0),
    "findAndModify": ({"findAndModify": "c", "query": {"$where": f"sleep(20) || this._id == {COUNT - 1}"},
                       "update": {"$set": {"n": 1}}}, lambda db: db.c.count_documents({"n": 1}) == 1),
    "$merge": ({"aggregate": "c", "pipeline": [{"$set": {"n": EACH}}, {"$merge": "merged"}], "cursor": {}},
               lambda db: db.merged.count_documents({}) == COUNT),
    "$out": ({"aggregate": "c", "pipeline": [{"$set": {"n": EACH}}, {"$out": "written"}], "cursor": {}},
             lambda db: db.written.count_documents({}) == COUNT),
    "mapReduce": ({"mapReduce": "c", "map": Code("function() { sleep(20); emit(this._id, 1) }"),
                   "reduce": Code("function(key, values) { return 1 }"), "out": "reduced"},
                  lambda db: db.reduced.count_documents({}) == COUNT),
    "createIndexes": ({"createIndexes": "c", "indexes": [
        {"key": {"n": 1}, "name": "slow", "partialFilterExpression": {"_id": {"$gte": 0}}}]},
                      lambda db: "slow" in db.c.index_information()),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_write_is_completed(client, db, name):
    command, is_done = LONG[name]
    many = 100_000 if name == "createIndexes" else COUNT
    db.c.insert_many([{"_id": i} for i in range(many)])

    def is_running():
        ops = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.$db": db.name}}])
        return any(op["ns"].startswith(db.name) for op in ops)

    with socket.create_connection(client.address) as leaver:
        leaver.sendall(message({**command, "$db": db.name}))
        until(is_running)
    until(lambda: is_done(db))


def test_a_write_that_waits_for_a_transaction_is_done_after_it(client, c):
    c.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        change = {"update": c.name, "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 10}}}], "$db": c.database.name}
        after = {"insert": c.name, "documents": [{"_id": "after"}], "$db": c.database.name}
        leave(client.address, message(change), message(after))
        time.sleep(0.3)
        assert c.find_one({"_id": 1})["n"] == 0
        session.commit_transaction()
    until(lambda: c.count_documents({"_id": "after"}) == 1)
    assert c.find_one({"_id": 1})["n"] == 11


def test_a_write_that_waits_for_a_lock_is_done_after_it(db, client):
    if server.is_mongod():
        pytest.skip("its lock is held by a thread of its own")
    db.c.insert_one({"_id": 0})
    client.admin.command("fsync", lock=True)
    try:
        leave(client.address, message({"insert": "c", "documents": [{"_id": 1}], "$db": db.name}))
        time.sleep(0.3)
        assert db.c.count_documents({}) == 1
    finally:
        client.admin.command("fsyncUnlock")
    until(lambda: db.c.count_documents({}) == 2)


def test_a_statement_of_a_transaction_is_done(client, db):
    db.c.insert_many([{"_id": i} for i in range(COUNT)])
    host, port = client.address
    part = {"lsid": {"id": Binary(os.urandom(16), 4)}, "txnNumber": Int64(1), "autocommit": False}
    leaver = Raw(port, host)
    begun = leaver.command(db.name, insert="c", documents=[{"_id": "first"}], startTransaction=True, **part)
    assert begun["ok"] == 1, begun
    update = {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"n": EACH}}], "multi": True}], **part, "$db": db.name}
    leaver.send(update)
    time.sleep(0.2)
    leaver.socket.close()
    # It may be committed from elsewhere.
    other = Raw(port, host)
    until(lambda: other.command("admin", commitTransaction=1, **part)["ok"] == 1)
    assert db.c.count_documents({"n": {"$exists": True}}) == COUNT + 1
