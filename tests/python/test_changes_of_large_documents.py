"""Small changes of large documents, whose differences are stored: every way to read finds the last version, a transaction
the one of its beginning, also after a kill, a compaction and an index build."""
import copy
import pathlib
import random

import bson
import pymongo
import pytest
import server

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="a mongod alone has no transactions"), pytest.mark.embedded]

COUNT, ROUNDS, EACH = 8, 6, 60


def new_document(rng, number):
    return {"_id": number, "n": 0, "d": 0.5, "list": [rng.randrange(1000) for _ in range(rng.randrange(50))],
            "at": {"deep": {"n": 0}}, "text": rng.randbytes(rng.choice((2_500, 6_000, 60_000))).hex(), "last": "x", "end": [1, 2, 3]}


def change(rng, doc):
    """A change as an update, applied to `doc`, too."""
    value, kind = rng.randrange(1000), rng.randrange(8)
    if kind == 0:
        doc["n"] += value
        doc["end"][0] += 1
        return {"$inc": {"n": value, "end.0": 1}}
    if kind == 1:
        doc["list"].append(value)
        return {"$push": {"list": value}}
    if kind == 2:
        doc["list"] = [each for each in doc["list"] if each >= value]
        return {"$pull": {"list": {"$lt": value}}}
    if kind == 3:
        doc["last"] = "x" * (value % 40)
        return {"$set": {"last": doc["last"]}}
    if kind == 4:
        doc["at"]["deep"]["n"] = value
        doc["d"] *= 2
        return {"$set": {"at.deep.n": value}, "$mul": {"d": 2}}
    if kind == 5:
        name = "f%d" % (value % 5)
        if name in doc:
            del doc[name]
            return {"$unset": {name: 1}}
        doc[name] = value
        return {"$set": {name: value}}
    if kind == 6:
        place = value * len(doc["text"]) // 1000
        doc["text"] = doc["text"][:place] + "?" + doc["text"][place + value % 2:]
        return [{"$set": {"text": {"$literal": doc["text"]}}}]
    doc["text"] = rng.randbytes(len(doc["text"]) // 2).hex()
    return {"$set": {"text": doc["text"]}}


def check(collection, model, session=None):
    wanted = [model[number] for number in sorted(model)]
    found = list(collection.find({}, session=session).sort("_id", 1))
    assert [bson.encode(doc) for doc in found] == [bson.encode(doc) for doc in wanted]
    assert list(collection.find({}, session=session).sort("_id", -1)) == wanted[::-1]
    for doc in wanted:
        assert collection.find_one({"_id": doc["_id"]}, session=session) == doc
        assert collection.find_one({"_id": doc["_id"]}, {"last": 1, "_id": 0}, session=session) == {"last": doc["last"]}
    assert list(collection.aggregate([{"$match": {"_id": {"$in": list(model)}}}, {"$sort": {"_id": 1}}], session=session)) == wanted


@pytest.mark.parametrize("is_set", [False, True])
def test_changes_of_large_documents(tmp_path, is_set):
    rng = random.Random(7 + is_set)
    options = ["--repl-set", "rs0"] if is_set else []
    with server.Server(*options, dbpath=str(tmp_path / "data")) as own, pymongo.MongoClient(own.uri) as client:
        c = client.db.c
        model = {number: new_document(rng, number) for number in range(COUNT)}
        c.insert_many(model.values())
        for turn in range(ROUNDS):
            with client.start_session() as session, session.start_transaction():
                before = copy.deepcopy(model)
                check(c, before, session)
                for _ in range(EACH):
                    doc = model[rng.randrange(COUNT)]
                    if rng.random() < 0.1:
                        number = doc["_id"]
                        model[number] = {**doc, "n": -1}
                        c.replace_one({"_id": number}, model[number])
                    elif rng.random() < 0.2:
                        found = c.find_one_and_update({"_id": doc["_id"]}, change(rng, doc), return_document=True)
                        assert found == doc
                    else:
                        c.update_one({"_id": doc["_id"]}, change(rng, doc))
                check(c, before, session)
            check(c, model)
            with client.start_session() as session, session.start_transaction():
                doc = model[turn]
                c.update_one({"_id": turn}, change(rng, doc), session=session)
                c.update_one({"_id": turn}, change(rng, doc), session=session)
            gone = model.pop(rng.choice(sorted(model)))
            c.delete_one({"_id": gone["_id"]})
            model[gone["_id"]] = new_document(rng, gone["_id"])
            c.insert_one(model[gone["_id"]])
            if turn % 3 == 0:
                own.kill()
                own.start()
            elif turn % 3 == 1:
                client.db.command("compact", "c", force=True)
            else:
                c.create_index([("n", 1), ("list", 1)])
            check(c, model)
        assert client.db.command("validate", "c", full=True)["valid"]
        assert list(c.find({"n": -1}).hint("n_1_list_1").sort("_id", 1)) == [
            model[number] for number in sorted(model) if model[number]["n"] == -1]
        sizes = client.db.command("collStats", "c")
        assert (sizes["count"], sizes["size"]) == (COUNT, sum(len(bson.encode(doc)) for doc in model.values()))


def test_a_small_change_is_a_small_write(tmp_path):
    with server.Server(dbpath=str(tmp_path / "data")) as own, pymongo.MongoClient(own.uri) as client:
        c = client.db.c
        c.insert_many([{"_id": number, "n": 0, "list": [], "text": random.randbytes(50_000).hex()} for number in range(4)])

        def written():
            return sum(path.stat().st_size for path in (tmp_path / "data" / "store").glob("*.log"))

        before = written()
        for turn in range(100):
            c.update_one({"_id": turn % 4}, {"$inc": {"n": 1}})
            c.update_many({}, {"$push": {"list": turn}})
            c.update_one({"_id": 0}, [{"$set": {"last": turn}}])
            with client.start_session() as session, session.start_transaction():
                c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
                c.update_one({"_id": 2}, {"$set": {"of": {"two": turn}}}, session=session)
        # As whole documents 80 MB.
        assert 0 < written() - before < 1_000_000
        assert [doc["list"] for doc in c.find()] == [list(range(100))] * 4
