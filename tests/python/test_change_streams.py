"""Change streams through a driver, and the oplog that they follow: what they tell, from where, and what they outlive."""
import copy
import random
import threading
import time

import bson
import pymongo
import pytest
import server
from pymongo.errors import OperationFailure
from raw import Raw
from update_descriptions import described

marula_only = pytest.mark.skipif(server.is_mongod(), reason="a way of Marula's own")


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        client.drop_database("cs")
        client.cs.create_collection("c")
        yield client


def take(stream, count, seconds=20):
    """The next `count` events."""
    events = []
    for _ in range(seconds * 20):
        while len(events) < count:
            event = stream.try_next()
            if event is None:
                break
            events.append(event)
        if len(events) == count or not stream.alive:
            return events
    raise AssertionError("only %d of %d events came: %s" % (len(events), count, events))


def kinds(events):
    return [event["operationType"] for event in events]


def test_every_change_of_a_collection_is_told_in_order(rs):
    c = rs.cs.c
    with c.watch(max_await_time_ms=50) as stream:
        c.insert_many([{"_id": 1, "a": 1}, {"_id": 2}])
        rs.cs.other.insert_one({"_id": 3})
        c.update_one({"_id": 1}, {"$set": {"b": {"x": 1}}, "$unset": {"a": 1}})
        c.replace_one({"_id": 2}, {"z": 1})
        c.find_one_and_delete({"_id": 2})
        events = take(stream, 5)
        assert kinds(events) == ["insert", "insert", "update", "replace", "delete"]
        assert [event["documentKey"]["_id"] for event in events] == [1, 2, 1, 2, 2]
        assert events[2]["updateDescription"] == {
            "updatedFields": {"b": {"x": 1}}, "removedFields": ["a"], "truncatedArrays": []}
        tokens = [event["_id"]["_data"] for event in events]
        assert tokens == sorted(tokens) and all(token.startswith("82") for token in tokens)
        times = [event["clusterTime"] for event in events]
        assert times == sorted(times)
        assert [int(token[2:18], 16) for token in tokens] == [time.time << 32 | time.inc for time in times]
    for event, rest in zip(events, range(4, -1, -1)):
        with c.watch(resume_after=event["_id"], max_await_time_ms=50) as stream:
            assert take(stream, rest) == events[5 - rest:]
    with c.watch(start_at_operation_time=times[2], max_await_time_ms=50) as stream:
        assert take(stream, 3) == events[2:]


def test_a_stream_ends_with_what_it_follows_and_another_goes_on_behind(rs):
    c = rs.cs.c
    with c.watch(max_await_time_ms=50) as stream, rs.cs.watch(max_await_time_ms=50) as of_database:
        c.insert_one({"_id": 1})
        c.rename("d")
        events = take(stream, 3)
        assert kinds(events) == ["insert", "rename", "invalidate"] and not stream.alive
        c.insert_one({"_id": 2})
        with pytest.raises(OperationFailure) as error:
            c.watch(resume_after=events[2]["_id"])
        assert error.value.code == 260
        with c.watch(start_after=events[2]["_id"], max_await_time_ms=50) as again:
            assert [event["documentKey"] for event in take(again, 1)] == [{"_id": 2}]
        rs.drop_database("cs")
        events = take(of_database, 7)
        assert kinds(events[:3]) == ["insert", "rename", "insert"]
        assert sorted(kinds(events[3:5])) == ["drop", "drop"]
        assert kinds(events[5:]) == ["dropDatabase", "invalidate"]


def test_what_a_capped_copy_cannot_hold_is_not_copied(rs):
    """Recorded from mongod 6.0: 6 of 30 documents are not copied, 19 are removed again."""
    rs.cs.c.insert_many([{"_id": n, "a": "x" * 1000} for n in range(30)])
    with rs.cs.watch(show_expanded_events=True, max_await_time_ms=50) as stream:
        rs.cs.command("cloneCollectionAsCapped", "c", toCollection="d", size=5000)
        removed = [event["documentKey"]["_id"] for event in take(stream, 20)[1:]]
    assert removed == list(range(6, 25))
    assert [document["_id"] for document in rs.cs.d.find()] == list(range(25, 30))
    entries = rs.local["oplog.rs"].find({"ns": "cs.d", "op": "i"}, {"o._id": 1}).sort("$natural", -1).limit(24)
    assert sorted(entry["o"]["_id"] for entry in entries) == list(range(6, 30))


def test_copies_are_not_told_and_views_are_modified(rs):
    rs.cs.c.insert_many([{"_id": n} for n in range(3)])
    with rs.cs.watch(show_expanded_events=True) as stream:
        rs.cs.command("convertToCapped", "c", size=4096)
        rs.cs.command("cloneCollectionAsCapped", "c", toCollection="d", size=4096)
        rs.cs.create_collection("v", viewOn="c", pipeline=[])
        rs.cs.command("collMod", "v", viewOn="c", pipeline=[{"$match": {"a": 1}}])
        rs.cs.create_collection("series", timeseries={"timeField": "t"})
        rs.cs.command("collMod", "series", timeseries={"granularity": "minutes"})
        rs.cs.command("collMod", "series", expireAfterSeconds=1000)
        rs.cs.series.drop()
        events = take(stream, 8)
    assert [(event["operationType"], event["ns"]["coll"].partition(".")[0]) for event in events[1:]] == [
        ("rename", events[0]["ns"]["coll"].partition(".")[0]), ("create", "d"), ("create", "v"), ("modify", "v"), ("create", "series"),
        ("modify", "series"), ("drop", "series")]
    assert events[4]["operationDescription"] == {"viewOn": "c", "pipeline": [{"$match": {"a": 1}}]}
    assert events[6]["operationDescription"]["pipeline"] == [{"$_internalUnpackBucket": {"timeField": "t", "bucketMaxSpanSeconds": 86400}}]


@pytest.mark.parametrize("count", [0, 1])
def test_options_of_an_index_come_in_the_order_of_mongod(rs, count):
    """Whatever the order in the command: drivers send the name first."""
    for n in range(count):
        rs.cs.c.insert_one({"_id": n})
    given = [
        {"name": "a", "key": {"a": 1}},
        {"expireAfterSeconds": 5, "sparse": True, "name": "b", "key": {"b": 1}, "hidden": True},
        {"partialFilterExpression": {"a": 1}, "unique": True, "name": "c", "key": {"c": 1}},
    ]
    with rs.cs.c.watch(show_expanded_events=True) as stream:
        rs.cs.command("createIndexes", "c", indexes=given)
        made = [index for event in take(stream, 1 if count else 3) for index in event["operationDescription"]["indexes"]]
        rs.cs.c.drop_index("c")
        dropped = take(stream, 1)[0]["operationDescription"]["indexes"]
    wanted = [
        ["v", "key", "name"], ["v", "hidden", "key", "name", "expireAfterSeconds", "sparse"],
        ["v", "unique", "key", "name", "partialFilterExpression"],
    ]
    assert [list(index) for index in made] == wanted
    assert [list(index) for index in dropped] == wanted[2:]


def test_a_database_that_never_was_cannot_be_dropped(rs):
    with rs.never.watch(max_await_time_ms=50) as stream:
        rs.drop_database("never")
        rs.never.c.insert_one({"_id": 1})
        assert kinds(take(stream, 1)) == ["insert"]
        rs.never.drop_collection("c")
        rs.drop_database("never")
        assert kinds(take(stream, 3)) == ["drop", "dropDatabase", "invalidate"]
    with rs.never.watch(max_await_time_ms=50) as stream:
        rs.drop_database("never")
        rs.never.c.insert_one({"_id": 1})
        assert kinds(take(stream, 1)) == ["insert"]


def test_a_transaction_is_told_of_with_its_commit(rs):
    c, d = rs.cs.c, rs.cs.d
    d.insert_one({"_id": 0})
    with rs.cs.watch(max_await_time_ms=50) as stream, rs.start_session() as session:
        session.start_transaction()
        c.insert_one({"_id": 1}, session=session)
        c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        d.delete_one({"_id": 0}, session=session)
        c.insert_one({"_id": 2})
        session.commit_transaction()
        session.start_transaction()
        c.insert_one({"_id": 3}, session=session)
        session.abort_transaction()
        c.insert_one({"_id": 4})
        events = take(stream, 5)
    assert [(event["operationType"], event["ns"]["coll"], event["documentKey"]["_id"]) for event in events] == [
        ("insert", "c", 2), ("insert", "c", 1), ("update", "c", 1), ("delete", "d", 0), ("insert", "c", 4)]
    inside = events[1:4]
    assert len({event["clusterTime"] for event in inside}) == 1
    assert len({event["_id"]["_data"] for event in inside}) == 3
    assert all(event["txnNumber"] and event["lsid"]["id"] for event in inside)
    assert all("lsid" not in event for event in events[:1] + events[4:])
    with rs.cs.watch(resume_after=events[2]["_id"], max_await_time_ms=50) as stream:
        assert take(stream, 2) == events[3:]


def test_a_transaction_of_more_than_an_entry_takes(rs):
    c = rs.cs.c
    text = "x" * 1_000_000
    with c.watch([{"$project": {"documentKey": 1}}], max_await_time_ms=50) as stream:
        with rs.start_session() as session, session.start_transaction():
            for n in range(40):
                c.insert_one({"_id": n, "text": text}, session=session)
        events = take(stream, 40)
        assert [event["documentKey"]["_id"] for event in events] == list(range(40))
    with c.watch([{"$project": {"documentKey": 1}}], resume_after=events[20]["_id"], max_await_time_ms=50) as stream:
        assert take(stream, 19) == events[21:]
    entries = list(rs.local["oplog.rs"].find({"ns": "admin.$cmd"}, {"o.applyOps.o._id": 1, "o.partialTxn": 1,
                                                                    "prevOpTime": 1, "ts": 1}).sort("$natural", -1).limit(3))
    assert len(entries) == 3 and "partialTxn" not in entries[0]["o"]
    for later, earlier in zip(entries, entries[1:]):
        assert earlier["o"]["partialTxn"] is True and later["prevOpTime"]["ts"] == earlier["ts"]


def test_images_of_documents_before_and_after(rs):
    rs.cs.c.insert_one({"_id": 0, "a": 0})
    c = rs.cs.create_collection("i", changeStreamPreAndPostImages={"enabled": True})
    with c.watch(full_document="required", full_document_before_change="required", max_await_time_ms=50) as stream:
        c.insert_one({"_id": 1, "a": 1, "r": [1, 2, 3]})
        c.update_one({"_id": 1}, {"$inc": {"a": 1}, "$push": {"r": 4}})
        c.update_one({"_id": 1}, [{"$set": {"a": "x"}}])
        c.replace_one({"_id": 1}, {"b": 1})
        with rs.start_session() as session, session.start_transaction():
            c.update_one({"_id": 1}, {"$set": {"b": 2}}, session=session)
            c.update_one({"_id": 1}, {"$set": {"b": 3}}, session=session)
        c.delete_one({"_id": 1})
        events = take(stream, 7)
    shown = [(event.get("fullDocumentBeforeChange"), event.get("fullDocument")) for event in events]
    states = [None, {"_id": 1, "a": 1, "r": [1, 2, 3]}, {"_id": 1, "a": 2, "r": [1, 2, 3, 4]},
              {"_id": 1, "a": "x", "r": [1, 2, 3, 4]}, {"_id": 1, "b": 1}, {"_id": 1, "b": 2}, {"_id": 1, "b": 3}, None]
    assert shown == list(zip(states, states[1:]))
    assert rs.config["system.preimages"].count_documents({"preImage._id": 1}) >= 6
    rs.cs.command("collMod", "i", changeStreamPreAndPostImages={"enabled": False})
    with c.watch(full_document="required", max_await_time_ms=50) as stream:
        c.insert_one({"_id": 2})
        c.update_one({"_id": 2}, {"$set": {"a": 1}})
        with pytest.raises(OperationFailure) as error:
            take(stream, 2)
        assert error.value.code == 47


@pytest.mark.parametrize("wanted", [
    {"documentKey._id": 1}, {"operationType": "insert"}, {"documentKey._id": {"$nin": [2]}}, {"none": 1},
    {"$or": [{"documentKey._id": 1}, {"ns.coll": "other"}]}, {"$expr": {"$eq": ["$documentKey._id", 1]}},
    {"$expr": False}, {"documentKey._id": 1, "fullDocument.a": 1}])
@pytest.mark.parametrize("before", [[], [{"$project": {"wallTime": 0}}], [{"$match": {}}, {"$addFields": {"x": 1}}]])
def test_an_event_that_a_pipeline_rejects_requires_no_documents(rs, wanted, before):
    c = rs.cs.c
    c.insert_many([{"_id": 1}, {"_id": 2}])
    with c.watch([*before, {"$match": wanted}], full_document="required", full_document_before_change="required",
                 max_await_time_ms=50) as stream:
        c.update_one({"_id": 2}, {"$set": {"a": 1}})
        c.replace_one({"_id": 2}, {"a": 2})
        c.delete_one({"_id": 2})
        assert stream.try_next() is None
        token = stream.resume_token
        c.insert_one({"_id": 3})
        rest = [] if stream.try_next() is None else [3]
        assert rest == ([3] if "insert" in str(wanted) or "$nin" in str(wanted) else [])
        assert stream.resume_token["_data"] > token["_data"]


@pytest.mark.parametrize("required, wanted, code", [
    ("full_document", {"fullDocument.a": 9}, 47),
    ("full_document", {"$or": [{"documentKey._id": 1}, {"fullDocument.a": 9}]}, 47),
    ("full_document", {"updateDescription.updatedFields.a": 1}, 47),
    ("full_document", {"fullDocumentBeforeChange": {"$ne": None}}, None),
    ("full_document_before_change", {"fullDocumentBeforeChange.a": 9}, 47),
    ("full_document_before_change", {"fullDocument.a": 9}, None)])
def test_a_condition_on_a_document_requires_that_document(rs, required, wanted, code):
    c = rs.cs.c
    c.insert_one({"_id": 2})
    with c.watch([{"$match": wanted}], max_await_time_ms=50, **{required: "required"}) as stream:
        c.update_one({"_id": 2}, {"$set": {"a": 1}})
        if code is None:
            assert stream.try_next() is None
            return
        with pytest.raises(OperationFailure) as error:
            take(stream, 1)
        assert error.value.code == code


def test_the_document_before_a_change_is_looked_up_first(rs):
    c = rs.cs.c
    c.insert_one({"_id": 2})
    with c.watch(full_document="required", full_document_before_change="required", max_await_time_ms=50) as stream:
        c.update_one({"_id": 2}, {"$set": {"a": 1}})
        with pytest.raises(OperationFailure, match="require a pre-image"):
            take(stream, 1)


def value(rng, depth=0):
    if depth < 2 and rng.random() < 0.3:
        names = rng.sample("abc", rng.randrange(3))
        return rng.choice([{name: value(rng, depth + 1) for name in names},
                           [value(rng, depth + 1) for _ in range(rng.randrange(4))]])
    return rng.choice([1, 2, 2.5, "x", "long " * 10, None, True])


def random_update(rng):
    path = lambda: ".".join(rng.choice(["a", "b", "c", "r", "0", "1"]) for _ in range(rng.randrange(1, 3)))
    kind = rng.randrange(9)
    if kind == 0:
        return [{"$set": {rng.choice("abr"): {"$literal": value(rng)}}}, {"$unset": rng.choice("abc")}]
    if kind == 1:
        return [{"$set": {"r": {"$cond": [{"$isArray": "$r"}, {"$slice": ["$r", 1]}, [1, 2, 3]]}}}]
    if kind == 2:
        return {"$push": {"r": {"$each": [value(rng), value(rng)], "$slice": rng.choice([2, 9, -3])}}}
    if kind == 3:
        return {"$push": {"r": value(rng)}}
    if kind == 4:
        return {"$unset": {path(): 1}}
    if kind == 5:
        return {"$rename": {"a": "d"}}
    return {"$set": {path(): value(rng), path() + "x": 1}}


def test_what_is_told_of_an_update_makes_the_new_document_of_the_old(rs):
    rng = random.Random(7)
    c = rs.cs.create_collection("u", changeStreamPreAndPostImages={"enabled": True})
    c.insert_one({"_id": 1})
    told = 0
    with c.watch(full_document="required", full_document_before_change="required", max_await_time_ms=50) as stream:
        for _ in range(400):
            try:
                told += c.update_one({"_id": 1}, random_update(rng)).modified_count
            except OperationFailure:
                pass
            if rng.random() < 0.05:
                told += c.replace_one({"_id": 1}, {"r": [1, {"a": 1}], "a": {"b": 1}}).modified_count
        events = take(stream, told)
    last = {"_id": 1}
    for event in events:
        before, after = event["fullDocumentBeforeChange"], event["fullDocument"]
        assert before == last
        if event["operationType"] == "update":
            assert described(before, event["updateDescription"]) == after, event
        last = after
    assert last == c.find_one({"_id": 1})


def follow(mirror, event):
    """Has a mirror of a collection follow an event."""
    if event["operationType"] in ("insert", "replace"):
        mirror[event["documentKey"]["_id"]] = event["fullDocument"]
    elif event["operationType"] == "update":
        key = event["documentKey"]["_id"]
        mirror[key] = described(mirror[key], event["updateDescription"])
    elif event["operationType"] == "delete":
        del mirror[event["documentKey"]["_id"]]


def test_a_mirror_follows_many_writers(rs):
    """Whatever token it goes on from, a mirror of the collection at that token ends as the collection does."""
    c = rs.cs.c
    writers, writes = 6, 60

    def write(number):
        rng = random.Random(number)
        for _ in range(writes):
            key = rng.randrange(8)
            kind = rng.randrange(5)
            try:
                if kind == 0:
                    c.replace_one({"_id": key}, {"n": rng.random()}, upsert=True)
                elif kind == 1:
                    c.delete_one({"_id": key})
                elif kind == 2:
                    with rs.start_session() as session, session.start_transaction():
                        c.update_one({"_id": key}, {"$inc": {"t": 1}}, session=session, upsert=True)
                        c.update_one({"_id": (key + 1) % 8}, {"$inc": {"t": -1}}, session=session, upsert=True)
                else:
                    c.update_one({"_id": key}, {"$push": {"r": number}, "$inc": {"k": 1}}, upsert=True)
            except OperationFailure as error:
                assert error.code in (112, 11000, 251), error

    with c.watch(max_await_time_ms=50) as stream:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        [thread.start() for thread in threads]
        events = []
        while any(thread.is_alive() for thread in threads):
            event = stream.try_next()
            events += [event] if event else []
        c.insert_one({"_id": "the end"})
        while not events or events[-1]["documentKey"]["_id"] != "the end":
            events += take(stream, 1)
    assert len({event["_id"]["_data"] for event in events}) == len(events)
    mirror, states = {}, []
    for event in events:
        follow(mirror, event)
        states.append(copy.deepcopy(mirror))
    wanted = {doc["_id"]: doc for doc in c.find()}
    assert mirror == wanted
    for at in random.Random(1).sample(range(len(events) - 1), 5):
        with c.watch(resume_after=events[at]["_id"], max_await_time_ms=50) as stream:
            rest = take(stream, len(events) - 1 - at)
        assert rest == events[at + 1:]
        for event in rest:
            follow(states[at], event)
        assert states[at] == wanted


def test_streams_that_wait_hold_nobody_up_and_all_hear(rs):
    """Hundreds wait at once, on a few threads; a write wakes those that it concerns."""
    port, count = int(rs.address[1]), 300
    raws = [Raw(port) for _ in range(count)]
    try:
        ids = []
        for number, raw in enumerate(raws):
            name = "c" if number % 2 else "quiet"
            opened = raw.command("cs", aggregate=name, pipeline=[{"$changeStream": {}}], cursor={})
            ids.append((opened["cursor"]["id"], name))
        for raw, (cursor, name) in zip(raws, ids):
            raw.send({"getMore": cursor, "collection": name, "maxTimeMS": 60_000, "$db": "cs"})
        assert rs.admin.command("ping")["ok"] == 1
        rs.cs.c.insert_one({"_id": 5})
        for raw, (_, name) in zip(raws, ids):
            if name == "c":
                batch = raw.reply()["cursor"]["nextBatch"]
                assert [event["documentKey"] for event in batch] == [{"_id": 5}]
        rs.cs.quiet.insert_one({"_id": 6})
        for raw, (_, name) in zip(raws, ids):
            if name == "quiet":
                assert raw.reply()["cursor"]["nextBatch"][0]["documentKey"] == {"_id": 6}
    finally:
        for raw in raws:
            raw.socket.close()


def test_streams_side_by_side_are_told_what_one_alone_is(rs):
    """Streams with the same events share them; each one's are those that follow its token, whatever the others do."""
    for seed in range(2):
        rng = random.Random(seed)
        rs.cs.drop_collection("c")
        rs.cs.create_collection("c")
        c, tokens, streams = rs.cs.c, [], []

        def write(number, seed=seed):
            own = random.Random("%d %d" % (seed, number))
            for turn in range(20):
                try:
                    with rs.start_session() as session, session.start_transaction():
                        for part in range(own.randrange(1, 4)):
                            text = "x" * own.choice([1, 100, 40_000])
                            rs.cs.c.insert_one({"_id": "%d %d %d" % (number, turn, part), "text": text}, session=session)
                    rs.cs.c.update_one({"_id": {"$regex": "^%d" % own.randrange(3)}}, {"$inc": {"n": 1}})
                    rs.cs.quiet.insert_one({"n": turn})
                except OperationFailure as error:
                    assert error.code in (112, 251), error

        with c.watch(max_await_time_ms=1) as first:
            streams.append((first.resume_token, first, []))
            writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
            [writer.start() for writer in writers]
            try:
                for _ in range(100):
                    if rng.random() < 0.2:
                        token = rng.choice(tokens) if tokens and rng.random() < 0.7 else streams[0][1].resume_token
                        size = rng.choice([1, 3, 100])
                        stream = c.watch(resume_after=token, batch_size=size, max_await_time_ms=rng.choice([1, 20]))
                        streams.append((token, stream, []))
                    token, stream, events = rng.choice(streams)
                    for _ in range(rng.choice([1, 5, 10])):
                        event = stream.try_next()
                        if event is not None:
                            events.append(event)
                        tokens.append(stream.resume_token)
            finally:
                [writer.join() for writer in writers]
            c.insert_one({"_id": "the end"})
            c.drop()
            for token, stream, events in streams:
                while stream.alive:
                    event = stream.try_next()
                    events += [event] if event else []
            assert len(streams) > 15
            for _, stream, _ in streams:
                stream.close()
        for token, _, events in streams:
            with c.watch(resume_after=token, max_await_time_ms=1) as alone:
                wanted = []
                while alone.alive:
                    event = alone.try_next()
                    wanted += [event] if event else []
            assert kinds(wanted)[-3:] == ["insert", "drop", "invalidate"]
            assert [event["_id"] for event in events] == [event["_id"] for event in wanted]
            assert events == wanted


def test_readers_that_stay_away_miss_nothing(rs):
    """A thousand streams are open on one collection, and nobody reads them while it is written."""
    count, documents = 1_000, 500
    with Raw(int(rs.address[1])) as raw:
        opened = [raw.command("cs", aggregate="c", pipeline=[{"$changeStream": {}}], cursor={}) for _ in range(count)]
        cursors = [reply["cursor"]["id"] for reply in opened]

        def read(cursor, size):
            reply = raw.command("cs", getMore=cursor, collection="c", batchSize=size, maxTimeMS=60_000)
            return [event["documentKey"]["_id"] for event in reply["cursor"]["nextBatch"]]

        for start in range(0, documents, 100):
            rs.cs.command("insert", "c", documents=[{"_id": n} for n in range(start, start + 100)])
        for cursor in cursors:
            assert read(cursor, 3) == [0, 1, 2]
        for cursor in cursors[::200]:
            told = []
            while len(told) < documents - 3:
                told += read(cursor, 100)
            assert told == list(range(3, documents))
        raw.command("cs", killCursors="c", cursors=cursors)


def test_the_oplog_can_be_read_and_tailed(rs):
    oplog, c = rs.local["oplog.rs"], rs.cs.c
    start = next(oplog.find().sort("$natural", -1).limit(1))["ts"]
    rs.cs.command("insert", "c", documents=[{"_id": 1, "a": 1}, {"_id": 2}])
    rs.cs.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}])
    rs.cs.command("delete", "c", deletes=[{"q": {"_id": 1}, "limit": 1}])
    entries = list(oplog.find({"ts": {"$gt": start}, "ns": "cs.c"}))
    assert [(entry["op"], entry["o"], entry.get("o2")) for entry in entries] == [
        ("i", {"_id": 1, "a": 1}, {"_id": 1}), ("i", {"_id": 2}, {"_id": 2}),
        ("u", {"$v": 2, "diff": {"u": {"a": 2}}}, {"_id": 1}), ("d", {"_id": 1}, None)]
    for entry in entries:
        assert list(entry)[:3] == ["op", "ns", "ui"] and list(entry)[-4:] == ["ts", "t", "v", "wall"]
        assert isinstance(entry["t"], bson.Int64) and isinstance(entry["v"], bson.Int64)
    c.insert_many([{"_id": 3}, {"_id": 4}])
    retried = list(oplog.find({"ts": {"$gt": entries[-1]["ts"]}, "ns": "cs.c"}))
    assert [(list(entry)[:3], entry["stmtId"]) for entry in retried] == [(["lsid", "txnNumber", "op"], n) for n in (0, 1)]
    assert [entry["prevOpTime"]["ts"] for entry in retried] == [bson.Timestamp(0, 0), retried[0]["ts"]]
    assert {*retried[0]["lsid"]} == {"id", "uid"} and len({entry["txnNumber"] for entry in retried}) == 1
    times = [entry["ts"] for entry in oplog.find()]
    assert times == sorted(set(times))
    assert [entry["ts"] for entry in oplog.find().sort("$natural", -1)] == times[::-1]
    plan = oplog.find({"ts": {"$gt": start}}).explain()
    assert plan["executionStats"]["totalDocsExamined"] < len(times)
    cursor = oplog.find({"ts": {"$gte": entries[2]["ts"]}}, cursor_type=pymongo.CursorType.TAILABLE_AWAIT,
                        oplog_replay=True).max_await_time_ms(5000)
    assert [next(cursor)["op"], next(cursor)["op"]] == ["u", "d"]
    threading.Timer(0.1, lambda: c.insert_one({"_id": 9})).start()
    while True:
        entry = next(cursor)
        if entry["ns"] == "cs.c" and entry["o"]["_id"] == 9:
            break
    assert entry["o"] == {"_id": 9}
    cursor.close()
    for refused in (lambda: oplog.insert_one({}), lambda: oplog.drop(), lambda: oplog.create_index("a")):
        with pytest.raises(OperationFailure):
            refused()


@pytest.mark.embedded
def test_a_stream_goes_on_after_the_server_was_killed():
    """A driver resumes by itself: no event is lost or repeated."""
    with server.Server("--replSet", "rs0") as own:
        uri = "mongodb://127.0.0.1:%d/?directConnection=true" % own.port
        with pymongo.MongoClient(uri) as client:
            if server.is_mongod():
                client.admin.command("replSetInitiate")
                while not client.admin.command("hello")["isWritablePrimary"]:
                    pass
            c = client.cs.c
            with c.watch(max_await_time_ms=50) as stream:
                c.insert_many([{"_id": n} for n in range(5)])
                seen = [event["documentKey"]["_id"] for event in take(stream, 3)]
                c.with_options(write_concern=pymongo.WriteConcern(w="majority", j=True)).insert_one({"_id": 5})
                own.kill()
                own.start()
                if server.is_mongod():
                    while not client.admin.command("hello")["isWritablePrimary"]:
                        pass
                c.insert_one({"_id": 6})
                seen += [event["documentKey"]["_id"] for event in take(stream, 4)]
                assert seen == list(range(7))
                times = [entry["ts"] for entry in client.local["oplog.rs"].find()]
                assert times == sorted(set(times))


@marula_only
def test_without_a_replica_set_the_oplog_begins_with_the_first_stream(uri):
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        c = client.cs.c
        c.insert_one({"_id": 0})
        assert "oplog.rs" not in client.local.list_collection_names()
        with client.start_session() as session:
            session.start_transaction()
            c.insert_one({"_id": 1}, session=session)
            c.update_one({"_id": 0}, {"$set": {"a": 1}}, session=session)
            with c.watch(max_await_time_ms=50) as stream:
                c.insert_one({"_id": 2})
                session.commit_transaction()
                events = take(stream, 3)
        assert client.cs.command("ping")["operationTime"] >= events[-1]["clusterTime"]
        with c.watch(start_at_operation_time=events[1]["clusterTime"], max_await_time_ms=50) as stream:
            assert take(stream, 2) == events[1:]
        # The transaction's changes before the start of the oplog are reported in sum.
        assert kinds(events) == ["insert", "replace", "insert"]
        assert sorted(event["documentKey"]["_id"] for event in events[1:]) == [0, 1]
        for start in (bson.Timestamp(1, 1), bson.Timestamp(events[0]["clusterTime"].time - 100, 1)):
            with pytest.raises(OperationFailure) as error:
                c.watch(start_at_operation_time=start)
            assert error.value.code == 286 and error.value.has_error_label("NonResumableChangeStreamError")
        client.drop_database("local")
        with pytest.raises(OperationFailure) as error:
            c.watch(resume_after=events[0]["_id"])
        assert error.value.code == 286


@marula_only
def test_how_far_back_the_oplog_goes_is_said_at_the_start():
    with server.Server("--oplogSize", "5", "--oplogMinRetentionHours", "0.5") as own, pymongo.MongoClient(own.uri) as client:
        assert client.local.command("collStats", "oplog.rs")["maxSize"] == 5 << 20
        client.admin.command("replSetResizeOplog", 1, size=990)
        assert client.local.command("collStats", "oplog.rs")["maxSize"] == 990 << 20
        shown = client.admin.command("getCmdLineOpts")["parsed"]
        assert (shown["replication"]["oplogSizeMB"], shown["storage"]["oplogMinRetentionHours"]) in ((5, 0.5), ("5", "0.5"))
    with server.Server("--oplogSize", "7") as own, pymongo.MongoClient(own.uri) as client:
        assert "oplog.rs" not in client.local.list_collection_names()
        client.cs.c.watch().close()
        assert client.local.command("collStats", "oplog.rs")["maxSize"] == 7 << 20


@marula_only
def test_the_oplog_begins_beside_writers(uri):
    """Every write acknowledged after a stream was opened has an event."""
    for round_number in range(5):
        with server.Server("--storage-engine", "memory") as own, pymongo.MongoClient(own.uri) as client:
            c = client.cs.c
            c.insert_one({"_id": -1})
            is_open, stop = threading.Event(), threading.Event()
            after = [[] for _ in range(4)]

            def write(number):
                n = 0
                while not stop.is_set():
                    key = "%d-%d" % (number, n)
                    was_open = is_open.is_set()
                    c.insert_one({"_id": key})
                    if was_open:
                        after[number].append(key)
                    n += 1

            threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
            [thread.start() for thread in threads]
            with c.watch(max_await_time_ms=50) as stream:
                is_open.set()
                seen = {event["documentKey"]["_id"] for event in take(stream, 60)}
                stop.set()
                [thread.join() for thread in threads]
                wanted = set().union(*after)
                while not wanted <= seen:
                    seen |= {event["documentKey"]["_id"] for event in take(stream, 1)}


def test_a_write_is_later_than_any_time_that_was_told_before(rs):
    """A driver continues directly after the time of a reply, also in a second in which nothing was written yet."""
    for number in range(3):
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.001)
        told = rs.admin.command("ping")["operationTime"]
        rs.cs.c.insert_one({"_id": number})
        behind = bson.Timestamp(told.time, told.inc + 1)
        with rs.cs.c.watch(start_at_operation_time=behind, max_await_time_ms=50) as stream:
            assert take(stream, 1)[0]["documentKey"] == {"_id": number}


def test_a_pipeline_of_a_stream(rs):
    c = rs.cs.c
    wanted = [{"$match": {"operationType": "insert", "fullDocument.a": {"$gt": 1}}},
              {"$set": {"twice": {"$multiply": ["$fullDocument.a", 2]}}}, {"$unset": ["fullDocument", "wallTime"]}]
    with c.watch(wanted, max_await_time_ms=50) as stream:
        c.insert_many([{"_id": n, "a": n} for n in range(4)])
        assert [event["twice"] for event in take(stream, 2)] == [4, 6]
        token = stream.resume_token
        c.insert_many([{"_id": n, "a": 0} for n in range(10, 20)])
        assert stream.try_next() is None
        # Entries that were skipped are not read again.
        assert stream.resume_token["_data"] > token["_data"]
    with c.watch([{"$project": {"_id": 0}}], max_await_time_ms=50) as stream:
        c.insert_one({"_id": 99})
        with pytest.raises(OperationFailure) as error:
            take(stream, 1)
        assert error.value.code == 280
    for stage in ({"$group": {"_id": 1}}, {"$sort": {"a": 1}}, {"$out": "x"}, {"$lookup": {}}):
        with pytest.raises(OperationFailure):
            c.watch([stage])


def test_an_event_that_is_too_large_is_split(rs):
    c = rs.cs.c
    c.insert_one({"_id": 1, "a": "x" * 7_000_000})
    with c.watch([{"$changeStreamSplitLargeEvent": {}}], full_document="updateLookup", max_await_time_ms=50) as stream:
        c.update_one({"_id": 1}, {"$set": {"b": "y" * 9_000_000}})
        c.insert_one({"_id": 2})
        first, second, last = take(stream, 3)
    assert [part["splitEvent"] for part in (first, second)] == [{"fragment": 1, "of": 2}, {"fragment": 2, "of": 2}]
    assert {*first, *second} >= {"fullDocument", "updateDescription", "documentKey", "ns", "operationType"}
    assert last["documentKey"] == {"_id": 2}
    tokens = [part["_id"]["_data"] for part in (first, second, last)]
    assert tokens == sorted(tokens)
    for token, rest in ((first["_id"], [second, last]), (second["_id"], [last])):
        with c.watch([{"$changeStreamSplitLargeEvent": {}}], full_document="updateLookup", resume_after=token,
                     max_await_time_ms=50) as stream:
            assert take(stream, len(rest)) == rest
    with pytest.raises(OperationFailure) as error:
        with c.watch([{"$changeStreamSplitLargeEvent": {}}], resume_after=first["_id"], max_await_time_ms=50) as stream:
            take(stream, 1)
    assert error.value.code == 280
