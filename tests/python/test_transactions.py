"""Multi-document transactions through a driver: what they see, what others see, who wins, and how they end."""
import os
import random
import threading
import time

import pymongo
import pytest
import server
from histories import ABORTED, COMMITTED, Transaction, anomalies
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern
from raw import Raw

TRANSIENT = "TransientTransactionError"


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        client.drop_database("tx")
        client.tx.create_collection("c")
        client.tx.create_collection("d")
        yield client


def documents(collection, session=None, **options):
    return list(collection.find({}, sort=[("_id", 1)], session=session, **options))


def code_of(error):
    return error.value.code, error.value.has_error_label(TRANSIENT)


def test_writes_are_seen_inside_at_once_and_outside_from_the_commit_on(rs):
    c, d = rs.tx.c, rs.tx.d
    c.insert_many([{"_id": n, "a": n} for n in range(3)])
    with rs.start_session() as session:
        with session.start_transaction():
            c.insert_one({"_id": 9}, session=session)
            d.insert_one({"_id": 1}, session=session)
            assert c.update_one({"_id": 1}, {"$inc": {"a": 10}}, session=session).modified_count == 1
            assert c.delete_one({"_id": 2}, session=session).deleted_count == 1
            inside = [{"_id": 0, "a": 0}, {"_id": 1, "a": 11}, {"_id": 9}]
            assert documents(c, session) == inside
            assert list(c.aggregate([{"$count": "n"}], session=session)) == [{"n": 3}]
            assert sorted(c.distinct("a", session=session)) == [0, 11]
            found = c.find_one_and_update({"_id": 9}, {"$set": {"a": 1}}, session=session)
            assert found == {"_id": 9}
            joined = [{"$match": {"_id": 9}},
                      {"$lookup": {"from": "d", "localField": "a", "foreignField": "_id", "as": "x"}}]
            assert list(c.aggregate(joined, session=session)) == [{"_id": 9, "a": 1, "x": [{"_id": 1}]}]
            assert [doc["_id"] for doc in documents(c)] == [0, 1, 2]
            assert d.count_documents({}) == 0
        assert documents(c) == inside[:2] + [{"_id": 9, "a": 1}]
        assert (c.estimated_document_count(), d.estimated_document_count()) == (3, 1)
    for collection in (c, d):
        assert rs.tx.command("validate", collection.name)["valid"]


def test_an_abort_and_an_error_leave_nothing(rs):
    c = rs.tx.c
    c.insert_one({"_id": 1})
    with rs.start_session() as session:
        session.start_transaction()
        c.insert_one({"_id": 2}, session=session)
        session.abort_transaction()
        session.start_transaction()
        c.insert_one({"_id": 3}, session=session)
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            c.insert_one({"_id": 1}, session=session)
        with pytest.raises(OperationFailure) as ended:
            c.find_one({}, session=session)
        assert code_of(ended) == (251, True)
        with pytest.raises(OperationFailure) as ended:
            session.commit_transaction()
        assert ended.value.code == 251
    assert documents(c) == [{"_id": 1}]


def test_it_sees_one_moment(rs):
    c = rs.tx.c
    c.create_index("a")
    c.insert_many([{"_id": n, "a": n} for n in range(100)])
    with rs.start_session() as session, session.start_transaction(read_concern=ReadConcern("snapshot")):
        before = documents(c, session)
        c.update_many({}, {"$inc": {"a": 1000}})
        c.delete_many({"_id": {"$lt": 50}})
        c.insert_one({"_id": 500, "a": 3})
        assert documents(c, session) == before
        assert [doc["a"] for doc in c.find({"a": {"$gte": 10, "$lt": 20}}, session=session).hint("a_1")] == list(range(10, 20))
        batches = c.find({}, sort=[("a", -1)], batch_size=7, session=session)
        assert [doc["a"] for doc in batches] == list(range(99, -1, -1))
        assert c.count_documents({"a": 3}, session=session) == 1


def test_the_first_to_change_a_document_wins(rs):
    c = rs.tx.c
    c.insert_many([{"_id": 1}, {"_id": 2}])
    with rs.start_session() as first, rs.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"by": 1}}, session=first)
        with pytest.raises(OperationFailure) as lost:
            c.update_one({"_id": 1}, {"$set": {"by": 2}}, session=second)
        assert code_of(lost) == (112, True)
        second.abort_transaction()
        first.commit_transaction()
        # A change since its moment is a conflict too, by any client.
        second.start_transaction()
        assert c.find_one({"_id": 2}, session=second) == {"_id": 2}
        c.update_one({"_id": 2}, {"$set": {"by": 0}})
        with pytest.raises(OperationFailure) as lost:
            c.delete_one({"_id": 2}, session=second)
        assert code_of(lost) == (112, True)
        second.abort_transaction()
        # Of a document that nobody has seen, one is the first, too.
        first.start_transaction()
        second.start_transaction()
        c.insert_one({"_id": 3}, session=first)
        with pytest.raises(OperationFailure) as lost:
            c.insert_one({"_id": 3}, session=second)
        assert code_of(lost) == (112, True)
        first.abort_transaction()
    assert documents(c) == [{"_id": 1, "by": 1}, {"_id": 2, "by": 0}]


def test_what_changes_nothing_conflicts_with_nobody(rs):
    c = rs.tx.c
    works = [
        lambda s: c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=s).matched_count,
        lambda s: c.update_one({"_id": 1, "a": 7}, {"$set": {"a": 2}}, session=s).matched_count,
        lambda s: c.update_many({"_id": 1}, {"$max": {"a": 0}}, session=s).matched_count,
        lambda s: c.delete_one({"_id": 1, "a": 7}, session=s).deleted_count,
        lambda s: c.find_one_and_update({"_id": 1}, {"$set": {"a": 1}}, session=s),
        lambda s: c.find_one_and_delete({"_id": 1, "a": 9}, session=s),
    ]
    for work in works:
        c.delete_many({})
        c.insert_many([{"_id": 1, "a": 1}, {"_id": 2}])
        with rs.start_session() as first, rs.start_session() as second:
            first.start_transaction()
            second.start_transaction()
            found = work(first)
            assert c.update_one({"_id": 1}, {"$set": {"a": 5}}, session=second).modified_count == 1
            assert work(first) == found
            second.commit_transaction()
            # Nor does it matter that the document has changed since.
            assert work(first) == found
            first.commit_transaction()
        assert c.find_one({"_id": 1})["a"] == 5


def test_ordinary_writes_that_change_nothing_do_not_wait(rs):
    c = rs.tx.c
    c.insert_many([{"_id": 1, "a": 1}, {"_id": 2}])
    with rs.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"b": 1}}, session=session)
        for statement in ({"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, {"q": {"_id": 1, "a": 2}, "u": {"$set": {"a": 3}}}):
            assert rs.tx.command("update", "c", updates=[statement], maxTimeMS=5_000)["nModified"] == 0
        assert rs.tx.command("delete", "c", deletes=[{"q": {"_id": 1, "a": 2}, "limit": 1}], maxTimeMS=5_000)["n"] == 0
        session.abort_transaction()


def test_a_key_that_is_seen_taken_is_taken_whatever_became_of_it(rs):
    c, d = rs.tx.c, rs.tx.d
    c.create_index("u", unique=True)
    for work in (lambda s: c.insert_one({"_id": 1}, session=s), lambda s: c.insert_one({"_id": 9, "u": 1}, session=s),
                 lambda s: c.insert_many([{"_id": 9, "u": 9}, {"_id": 8, "u": 1}], session=s),
                 lambda s: c.update_one({"_id": 2}, {"$set": {"u": 1}}, session=s)):
        c.delete_many({})
        c.insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 2}])
        with rs.start_session() as session:
            session.start_transaction()
            d.find_one({}, session=session)
            c.delete_one({"_id": 1})
            with pytest.raises(pymongo.errors.PyMongoError) as error:
                work(session)
            assert "E11000" in str(error.value)
            session.abort_transaction()


def test_of_a_taken_key_and_a_locked_one_the_first_is_told(rs):
    c = rs.tx.c
    c.create_index("u", unique=True)
    c.insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 2}])
    with rs.start_session() as session, rs.start_session() as other:
        session.start_transaction()
        c.insert_one({"_id": 4, "u": 4}, session=session)
        c.delete_one({"_id": 1}, session=session)
        # Within a transaction: the index on `_id` is the first.
        for document, code in (({"_id": 4, "u": 2}, 112), ({"_id": 2, "u": 4}, 11000)):
            other.start_transaction()
            with pytest.raises(OperationFailure) as refused:
                c.insert_one(document, session=other)
            assert refused.value.code == code
            other.abort_transaction()
        # Outside: what is there is taken, though it is about to go.
        for document in ({"_id": 1, "u": 9}, {"_id": 9, "u": 1}):
            reply = rs.tx.command("insert", "c", documents=[document], maxTimeMS=5_000, check=False)
            assert [error["code"] for error in reply["writeErrors"]] == [11000]
        update = {"q": {"_id": 2}, "u": {"$set": {"u": 1}}}
        reply = rs.tx.command("update", "c", updates=[update], maxTimeMS=5_000, check=False)
        assert [error["code"] for error in reply["writeErrors"]] == [11000]
        # The statements before it in the list are executed.
        reply = rs.tx.command("insert", "c", documents=[{"_id": 7, "u": 7}, {"_id": 1}, {"_id": 4}], maxTimeMS=5_000, check=False)
        assert (reply["n"], [(error["index"], error["code"]) for error in reply["writeErrors"]]) == (1, [(1, 11000)])
        session.abort_transaction()


def test_unique_and_multikey_indexes(rs):
    c = rs.tx.c
    c.create_index("u", unique=True)
    c.create_index("tags")
    c.insert_many([{"_id": n, "u": n, "tags": n} for n in range(5)])
    with rs.start_session() as session, session.start_transaction():
        # A key that was freed in the transaction may be taken in it.
        c.update_one({"_id": 1}, {"$set": {"u": 100}}, session=session)
        c.insert_one({"_id": 10, "u": 1, "tags": ["x", "y"]}, session=session)
        assert c.find_one({"u": 1}, session=session)["_id"] == 10
        assert [doc["_id"] for doc in c.find({"tags": "y"}, session=session).hint("tags_1")] == [10]
        assert c.find_one({"u": 1})["_id"] == 1
        # Whoever else wants the key waits for it.
        with pytest.raises(pymongo.errors.ExecutionTimeout):
            rs.tx.command("insert", "c", documents=[{"_id": 11, "u": 1}], maxTimeMS=100)
    assert [doc["_id"] for doc in c.find({"u": {"$gte": 0}}).hint("u_1").sort("u", 1)] == [0, 10, 2, 3, 4, 1]
    assert [doc["_id"] for doc in c.find({"tags": {"$in": ["x", "y"]}}).hint("tags_1")] == [10]
    with rs.start_session() as session:
        session.start_transaction()
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            c.insert_one({"_id": 12, "u": 3}, session=session)
    assert rs.tx.command("validate", "c")["valid"]


def test_an_ordinary_writer_waits_for_the_transaction(rs):
    c = rs.tx.c
    c.insert_many([{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])
    with rs.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        with pytest.raises(pymongo.errors.ExecutionTimeout):
            rs.tx.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"$inc": {"n": 10}}}], maxTimeMS=100)
        # No other client is delayed.
        c.update_one({"_id": 2}, {"$inc": {"n": 10}})
        done = threading.Event()

        def write():
            c.update_one({"_id": 1}, {"$inc": {"n": 10}})
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert not done.wait(0.2)
        session.commit_transaction()
        writer.join(20)
        assert done.is_set()
    assert documents(c) == [{"_id": 1, "n": 11}, {"_id": 2, "n": 10}]


def test_changes_of_the_catalogue_wait(rs):
    c = rs.tx.c
    c.insert_one({"_id": 1, "a": 1})
    with rs.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"a": 2}}, session=session)
        for command in ({"drop": "c"}, {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
                        {"collMod": "c", "validationLevel": "off"}, {"dropDatabase": 1}):
            with pytest.raises(pymongo.errors.ExecutionTimeout):
                rs.tx.command({**command, "maxTimeMS": 100})
        # Operations on other collections continue.
        rs.tx.create_collection("e")
        dropper = threading.Thread(target=lambda: rs.tx.drop_collection("c"))
        dropper.start()
        # A request during the wait must be retried.
        with rs.start_session() as other:
            for _ in range(1000):
                other.start_transaction()
                try:
                    c.find_one({}, session=other)
                except OperationFailure as error:
                    assert error.code == 24 and error.has_error_label(TRANSIENT)
                    break
                other.abort_transaction()
            else:
                raise AssertionError("nobody waits for the collection")
        session.commit_transaction()
        dropper.join(20)
        assert "c" not in rs.tx.list_collection_names()
        # A collection that has changed since the transaction's moment cannot be read at it.
        session.start_transaction()
        rs.tx.d.find_one({}, session=session)
        c.insert_one({"_id": 1})
        with pytest.raises(OperationFailure) as gone:
            c.find_one({}, session=session)
        assert code_of(gone) == (246, True)


def test_an_index_that_is_younger_than_the_transaction_is_left_out(rs):
    c, d = rs.tx.c, rs.tx.d
    d.insert_one({"_id": 1})
    absent = "hint provided does not correspond to an existing index"
    conflict, unavailable = (112, True), (246, True)
    joined = [{"$lookup": {"from": "c", "localField": "_id", "foreignField": "a", "as": "found"}}]
    ids = lambda found: [doc["_id"] for doc in found]  # noqa: E731
    reads = [
        (lambda s: ids(c.find({"a": 1}, session=s)), [1, 4]),
        (lambda s: ids(c.find({"old": 1}, session=s).hint("old_1")), [1]),
        (lambda s: c.distinct("a", session=s), [0, 1, 2]),
        (lambda s: c.count_documents({"a": 1}, session=s), 2),
        (lambda s: ids(next(d.aggregate(joined, session=s))["found"]), [1, 4]),
        (lambda s: c.update_one({"_id": 1}, {"$set": {"z": 5}}, session=s).modified_count, 1),
        (lambda s: c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=s).modified_count, 0),
        (lambda s: c.delete_one({"_id": 100}, session=s).deleted_count, 0),
        (lambda s: c.create_index("old", session=s), "old_1"),
    ]
    refused = [
        (lambda s: list(c.find({"a": 1}, session=s).hint("a_1")), (2, False)),
        (lambda s: list(c.find({"a": 1}, session=s).hint([("a", 1)])), (2, False)),
        (lambda s: list(c.aggregate([{"$match": {"a": 1}}], hint="a_1", session=s)), (2, False)),
        (lambda s: c.update_one({"a": 1}, {"$set": {"z": 5}}, hint="a_1", session=s), (2, False)),
        (lambda s: c.insert_one({}, session=s), conflict),
        (lambda s: c.insert_many([{}, {}], session=s), conflict),
        (lambda s: c.delete_one({"_id": 1}, session=s), conflict),
        (lambda s: c.update_one({"_id": 100}, {"$set": {"z": 1}}, upsert=True, session=s), conflict),
        (lambda s: c.update_one({"_id": 1}, {"$set": {"a": 5}}, session=s), unavailable),
        (lambda s: c.update_one({"z": 1}, {"$set": {"old": 5}}, session=s), unavailable),
        (lambda s: c.find_one_and_update({"_id": 1}, {"$set": {"a": 5}}, session=s), unavailable),
        (lambda s: c.create_index("a", session=s), (285, False)),
        (lambda s: c.create_index("b", session=s), (263, False)),
    ]
    for work, expected in reads + refused:
        c.drop()
        c.insert_many([{"_id": n, "a": n % 3, "old": n, "z": n} for n in range(6)])
        c.create_index("old")
        with rs.start_session() as session:
            session.start_transaction()
            d.find_one({}, session=session)
            c.create_index("a")
            if (work, expected) in reads:
                assert work(session) == expected
            else:
                with pytest.raises(OperationFailure) as error:
                    work(session)
                assert code_of(error) == expected
                assert expected[0] != 2 or absent in str(error.value)
            session.abort_transaction()
    # Nor does it matter that one has gone, or that an option has changed.
    with rs.start_session() as session, session.start_transaction():
        d.find_one({}, session=session)
        c.drop_index("old_1")
        rs.tx.command("collMod", "c", validationLevel="off")
        assert ids(c.find({"old": 1}, session=session)) == [1]
        c.insert_one({"_id": 77}, session=session)
    assert c.count_documents({}) == 7
    assert rs.tx.command("validate", "c")["valid"]
    # A view reads what was there.
    with rs.start_session() as session, session.start_transaction():
        d.find_one({}, session=session)
        rs.tx.create_collection("young", viewOn="c", pipeline=[{"$match": {"_id": 77}}])
        assert ids(rs.tx.young.find({}, session=session)) == [77]
    # Reads at one moment outside transactions do without it, too; reads of the newest state do not.
    with rs.start_session(snapshot=True) as session:
        d.find_one({}, session=session)
        c.create_index("b")
        assert ids(c.find({"a": 1}, session=session)) == [1, 4]
        with pytest.raises(OperationFailure) as error:
            list(c.find({"b": 1}, session=session).hint("b_1"))
        assert absent in str(error.value)
        assert list(c.find({"b": 1}).hint("b_1")) == []


def test_an_open_aggregation_and_later_writes_of_its_transaction(rs):
    """One that is a query shows them from the next batch on; another has read on up to 4 MB."""
    c = rs.tx.c
    c.insert_many([{"_id": n, "n": 0, "list": [1]} for n in range(300)])
    queries = [[], [{"$match": {"_id": {"$gte": 0}}}], [{"$project": {"n": 1}}], [{"$sort": {"_id": 1}}],
               [{"$skip": 0}, {"$limit": 299}]]
    others = [[{"$addFields": {"z": 1}}], [{"$unwind": "$list"}], [{"$limit": 299}, {"$addFields": {"z": 1}}],
              [{"$lookup": {"from": "d", "localField": "_id", "foreignField": "_id", "as": "joined"}}]]

    def old_ones(pipeline, size):
        with rs.start_session() as session:
            session.start_transaction()
            found = c.aggregate(pipeline, session=session, batchSize=size)
            first = [next(found) for _ in range(size)]
            c.update_many({}, {"$set": {"n": 1}}, session=session)
            values = [doc["n"] for doc in first + list(found)]
            session.abort_transaction()
        assert len(values) in (299, 300) and values == sorted(values)
        return values.count(0)

    for size in (1, 10, 150):
        assert [old_ones(pipeline, size) for pipeline in queries] == [size] * len(queries)
    for size in (1, 150):
        assert [old_ones(pipeline, size) for pipeline in others] == [300, 300, 299, 300]
    c.update_many({}, {"$set": {"pad": "x" * 100_000}})
    assert old_ones(queries[0], 10) == 10
    assert [old_ones(others[0], size) for size in (1, 10, 40)] == [42] * 3


def test_any_statement_may_begin_a_transaction_at_any_level(rs):
    for level in ("snapshot", "majority", "local"):
        for begin in (lambda s: rs.tx.c.insert_one({"a": 1}, session=s), lambda s: rs.tx.c.delete_one({}, session=s),
                      lambda s: rs.tx.c.update_one({}, {"$set": {"a": 2}}, upsert=True, session=s),
                      lambda s: rs.tx.c.find_one_and_delete({}, session=s), lambda s: rs.tx.c.distinct("a", session=s)):
            with rs.start_session() as session, session.start_transaction(read_concern=ReadConcern(level)):
                begin(session)


def test_the_catalogue_is_changed_at_the_newest_moment_alone(rs):
    for level in ("snapshot", "majority"):
        with rs.start_session(causal_consistency=False) as session:
            session.start_transaction(read_concern=ReadConcern(level))
            rs.tx.c.find_one({}, session=session)
            with pytest.raises(OperationFailure) as error:
                rs.tx.create_collection("made", session=session, check_exists=False)
            assert error.value.code == 72
            assert "does not support this transaction's" in str(error.value)
            with pytest.raises(OperationFailure) as error:
                rs.tx.c.find_one({}, session=session)
            assert error.value.code == 251


def test_collections_and_indexes_are_created_with_the_commit(rs):
    names = lambda: set(rs.tx.list_collection_names())  # noqa: E731
    with rs.start_session() as session:
        with session.start_transaction():
            rs.tx.create_collection("made", session=session)
            rs.tx.made.create_index("a", unique=True, session=session)
            rs.tx.made.insert_many([{"_id": n, "a": -n} for n in range(3)], session=session)
            rs.tx.implied.insert_one({"_id": 1}, session=session)
            assert [doc["_id"] for doc in rs.tx.made.find({"a": -1}, session=session).hint("a_1")] == [1]
            assert names() == {"c", "d"}
        assert names() == {"c", "d", "made", "implied"}
        assert rs.tx.made.find_one({"a": -2}, hint="a_1") == {"_id": 2, "a": -2}
        assert set(rs.tx.made.index_information()) == {"_id_", "a_1"}
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            rs.tx.made.insert_one({"a": 0})
        assert rs.tx.command("validate", "made")["valid"]
        session.start_transaction()
        rs.tx.lost.insert_one({"_id": 1}, session=session)
        session.abort_transaction()
        assert "lost" not in names()
        # The first creation wins.
        session.start_transaction()
        rs.tx.raced.insert_one({"_id": 1}, session=session)
        rs.tx.raced.insert_one({"_id": 2})
        with pytest.raises(OperationFailure) as lost:
            session.commit_transaction()
        assert code_of(lost) == (112, True)
        assert documents(rs.tx.raced) == [{"_id": 2}]


def test_a_commit_is_answered_again(rs):
    c = rs.tx.c
    with rs.start_session() as session:
        session.start_transaction(write_concern=WriteConcern("majority"))
        c.insert_one({"_id": 1}, session=session)
        session.commit_transaction()
        session.commit_transaction()
    assert c.count_documents({}) == 1


@pytest.mark.embedded
def test_a_commit_is_answered_again_after_a_restart():
    from bson import Binary, Int64

    lsid = {"id": Binary(b"0123456789abcdef", 4)}
    inside = {"lsid": lsid, "txnNumber": Int64(1), "autocommit": False}
    with server.Server("--replSet", "rs0") as own:
        if server.is_mongod():
            with pymongo.MongoClient(own.uri) as client:
                client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:%d" % own.port}]})
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.05)
        with Raw(own.port) as raw:
            assert raw.command("tx", insert="c", documents=[{"_id": 1}])["ok"] == 1
            assert raw.command("tx", insert="c", documents=[{"_id": 2}], **inside, startTransaction=True)["ok"] == 1
            assert raw.command("admin", commitTransaction=1, **inside, writeConcern={"w": "majority"})["ok"] == 1
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
            assert [doc["_id"] for doc in client.tx.c.find()] == [1, 2]
        with Raw(own.port) as raw:
            assert raw.command("admin", commitTransaction=1, **inside)["ok"] == 1
            assert raw.command("admin", abortTransaction=1, **inside)["code"] == 256
            assert raw.command("tx", insert="c", documents=[{"_id": 3}], lsid=lsid, txnNumber=Int64(1))["code"] == 217
            again = {**inside, "txnNumber": Int64(2)}
            assert raw.command("admin", commitTransaction=1, **again)["code"] == 251


def test_a_transaction_that_is_left_open_ends(rs):
    c = rs.tx.c
    c.insert_one({"_id": 1})
    rs.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=1)
    try:
        with rs.start_session() as session:
            session.start_transaction()
            c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
            # It is waited for, and that has an end.
            c.update_one({"_id": 1}, {"$set": {"b": 1}})
            with pytest.raises(OperationFailure) as ended:
                c.find_one({}, session=session)
            assert code_of(ended) == (251, True)
    finally:
        rs.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=60)
    assert documents(c) == [{"_id": 1, "b": 1}]


def test_many_open_transactions_harm_nobody(rs):
    c = rs.tx.c
    sessions = [rs.start_session() for _ in range(200)]
    for number, session in enumerate(sessions):
        session.start_transaction()
        c.insert_one({"_id": number}, session=session)
    assert rs.admin.command("serverStatus")["transactions"]["currentOpen"] >= 200
    c.insert_many([{"_id": 1000 + n} for n in range(500)])
    c.update_many({"_id": {"$gte": 1000}}, {"$set": {"a": 1}})
    assert c.count_documents({"a": 1}) == 500
    for session in sessions[::2]:
        session.commit_transaction()
    for session in sessions[1::2]:
        session.end_session()
    assert c.count_documents({}) == 600
    assert rs.tx.command("validate", "c")["valid"]


@pytest.mark.embedded
def test_a_large_transaction(rs):
    """A hundred thousand documents, 68 MB."""
    c = rs.tx.c
    c.create_index("n")
    with rs.start_session() as session:
        with session.start_transaction():
            for start in range(0, 100_000, 10_000):
                c.insert_many([{"_id": n, "n": -n, "pad": "x" * 650} for n in range(start, start + 10_000)], session=session)
            assert c.update_many({"_id": {"$lt": 1000}}, {"$set": {"n": 7}}, session=session).modified_count == 1000
            assert c.count_documents({"n": 7}, session=session) == 1000
            assert c.count_documents({}) == 0
        assert c.count_documents({}) == 100_000
        assert c.count_documents({"n": 7}, hint="n_1") == 1000
    assert rs.tx.command("validate", "c")["valid"]


def test_histories_of_lists_have_no_anomalies(rs):
    """Random transactions append numbers to lists in two collections and read them, by `_id`, by an index, in pipelines,
    and beside them single writes append to the same lists."""
    keys = list(range(8))
    collections = [rs.tx.c, rs.tx.d]
    for collection in collections:
        collection.create_index("k")
        collection.insert_many([{"_id": key, "k": key, "list": []} for key in keys])
    history, lock = [], threading.Lock()

    def append(session, rng, key, number):
        collections[key % 2].update_one({"_id": key}, {"$push": {"list": number}}, session=session)
        return "append", key, number

    def read(session, rng, key):
        collection = collections[key % 2]
        way = rng.randrange(3)
        if way == 0:
            found = collection.find_one({"_id": key}, session=session)
        elif way == 1:
            found = next(collection.find({"k": key}, session=session).hint("k_1"))
        else:
            found = next(collection.aggregate([{"$match": {"k": key}}, {"$project": {"list": 1}}], session=session))
        return "read", key, found["list"]

    def append_alone(key, number):
        """By a pipeline that takes milliseconds, so that transactions begin and end between its read and its write."""
        long = {"$size": {"$filter": {"input": {"$range": [0, {"$add": [10_000, {"$size": "$list"}]}]}, "cond": {"$mod": ["$$this", 2]}}}}
        change = [{"$set": {"list": {"$concatArrays": ["$list", [number]]}, "n": long}}]
        after = collections[key % 2].find_one_and_update({"_id": key}, change, return_document=True)
        return [("append", key, number), ("read", key, after["list"])]

    def work(worker):
        rng = random.Random(worker)
        with rs.start_session() as session:
            for turn in range(60):
                operations, state, number = [], ABORTED, (worker * 1000 + turn) * 10
                if rng.random() < 0.3:
                    operations = append_alone(rng.choice(keys), number)
                    with lock:
                        history.append(Transaction((worker, turn), operations))
                    continue
                try:
                    session.start_transaction(read_concern=ReadConcern(rng.choice(["snapshot", "majority", "local"])))
                    for position in range(rng.randrange(1, 6)):
                        key = rng.choice(keys)
                        if rng.random() < 0.4:
                            operations.append(append(session, rng, key, number + position))
                        else:
                            operations.append(read(session, rng, key))
                    if rng.random() < 0.15:
                        session.abort_transaction()
                    else:
                        session.commit_transaction()
                        state = COMMITTED
                except OperationFailure as error:
                    assert error.has_error_label(TRANSIENT), error
                    if session.in_transaction:
                        session.abort_transaction()
                with lock:
                    history.append(Transaction((worker, turn), operations, state))

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    [worker.start() for worker in workers]
    [worker.join(120) for worker in workers]
    final = [("read", key, collections[key % 2].find_one({"_id": key})["list"]) for key in keys]
    history.append(Transaction("end", final))
    committed = [transaction for transaction in history if transaction.state == COMMITTED and transaction.appends()]
    assert len(history) == 6 * 60 + 1 and len(committed) > 30
    assert anomalies(history) == {}


def test_without_a_replica_set(uri, client, db):
    """A plain server has transactions, with nothing to initiate."""
    if server.is_mongod():
        pytest.skip("mongod has them in replica sets alone")
    with client.start_session() as session:
        with session.start_transaction():
            db.c.insert_one({"_id": 1}, session=session)
            assert db.c.count_documents({}) == 0
        assert db.c.count_documents({}) == 1
        session.with_transaction(lambda s: db.c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=s))
        assert db.c.find_one() == {"_id": 1, "a": 1}


def test_a_snapshot_session_reads_at_one_moment(rs):
    c, d = rs.tx.c, rs.tx.d
    c.create_index("a")
    c.insert_many([{"_id": n, "a": n} for n in range(300)])
    d.insert_one({"_id": 1})
    with rs.start_session(snapshot=True) as session:
        batches = c.find({}, batch_size=50, sort=[("a", 1)], session=session)
        first = [next(batches) for _ in range(50)]
        c.delete_many({"a": {"$gte": 100}})
        c.update_many({}, {"$inc": {"a": 1000}})
        d.insert_one({"_id": 2})
        assert [doc["a"] for doc in first + list(batches)] == list(range(300))
        # Whatever the session reads is of the moment of its first read, in other collections, too.
        assert [doc["_id"] for doc in d.find({}, session=session)] == [1]
        assert c.distinct("a", {"a": {"$lt": 3}}, session=session) == [0, 1, 2]
        grouped = c.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}, "max": {"$max": "$a"}}}], session=session)
        assert list(grouped) == [{"_id": None, "n": 300, "max": 299}]
        assert list(c.find({"a": 150}, session=session).hint("a_1")) == [{"_id": 150, "a": 150}]
    assert c.count_documents({}) == 100
    # A collection that has been made since has no such moment.
    with rs.start_session(snapshot=True) as session:
        assert c.find_one({"_id": 0}, session=session)
        rs.tx.create_collection("later")
        with pytest.raises(OperationFailure) as unavailable:
            rs.tx.later.find_one({}, session=session)
        assert unavailable.value.code == 246


def test_indexes_are_built_and_dropped_beside_transactions(rs):
    c = rs.tx.c
    c.insert_many([{"_id": n, "a": n % 7} for n in range(5_000)])
    is_over, committed, failures = threading.Event(), [], []

    def work(worker):
        with rs.start_session() as session:
            for turn in range(1_000_000):
                if is_over.is_set():
                    return
                try:
                    session.start_transaction()
                    number = (worker + 1) * 1_000_000 + turn
                    c.insert_one({"_id": number, "a": turn % 5, "b": [turn, turn + 1]}, session=session)
                    c.update_one({"_id": turn % 5_000}, {"$inc": {"a": 1}}, session=session)
                    session.commit_transaction()
                    committed.append(number)
                except OperationFailure as error:
                    if not error.has_error_label(TRANSIENT):
                        failures.append(error)
                        return
                    if session.in_transaction:
                        session.abort_transaction()

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    [worker.start() for worker in workers]
    for name in ("x", "y", "z"):
        c.create_index([("b", 1), ("a", -1)] if name == "y" else [(name, 1), ("b", -1)], name=name)
        if name == "y":
            c.drop_index("x")
    is_over.set()
    [worker.join(60) for worker in workers]
    assert committed and not failures, failures
    assert {doc["_id"] for doc in c.find({"_id": {"$gte": 1_000_000}}, {"_id": 1})} == set(committed)
    report = rs.tx.command("validate", "c")
    assert report["valid"], report


def test_a_bulk_write_is_of_a_transaction_like_any_other():
    if server.is_mongod():
        pytest.skip("mongod 6.0 has no bulkWrite")
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        client.admin.command("setFeatureCompatibilityVersion", "8.0", confirm=True)
        c = client.tx.c
        c.insert_many([{"_id": 1}, {"_id": 2}])

        def bulk(session, *ops):
            return client.admin.command("bulkWrite", 1, ops=list(ops), nsInfo=[{"ns": "tx.c"}], session=session)

        with client.start_session() as session:
            session.start_transaction()
            bulk(session, {"insert": 0, "document": {"_id": 3}}, {"delete": 0, "filter": {"_id": 1}})
            assert c.count_documents({}) == 2
            session.commit_transaction()
            assert [doc["_id"] for doc in documents(c)] == [2, 3]
            # An error of one of its operations ends the transaction, too.
            session.start_transaction()
            bulk(session, {"insert": 0, "document": {"_id": 4}}, {"insert": 0, "document": {"_id": 2}})
            with pytest.raises(OperationFailure) as ended:
                session.commit_transaction()
            assert ended.value.code == 251
        assert [doc["_id"] for doc in documents(c)] == [2, 3]


def test_writers_that_wait_for_a_transaction_hold_no_thread(rs):
    """Hundreds of them wait at the same time; one ends by its time limit or by killOp, and the others continue."""
    if server.is_mongod():
        pytest.skip("mongod has a thread for each connection")
    c = rs.tx.c
    c.insert_many([{"_id": n, "n": 0} for n in range(4)])
    waiting = 300
    body = {"update": "c", "$db": "tx", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
    with rs.start_session() as session:
        session.start_transaction()
        c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        raws = [Raw(int(rs.address[1])) for _ in range(waiting)]
        killed, timed, scanning = Raw(int(rs.address[1])), Raw(int(rs.address[1])), Raw(int(rs.address[1]))
        before = threads_of(rs)
        [raw.send(body) for raw in raws]
        killed.send({**body, "comment": "to be killed"})
        timed.send({**body, "maxTimeMS": 200})
        # One that has to look for what it changes, and meets it on a thread of the pool.
        scanning.send({"update": "c", "$db": "tx", "updates": [{"q": {"a": None, "n": 0}, "u": {"$inc": {"n": 1}}, "multi": True}],
                       "comment": "scans"})
        assert timed.reply()["code"] == 50
        while True:
            found = [op for op in rs.admin.command("currentOp")["inprog"] if op.get("command", {}).get("comment") == "to be killed"]
            if found:
                break
        rs.admin.command("killOp", op=found[0]["opid"])
        assert killed.reply()["code"] == 11601
        # No other client is delayed, and there are threads for long operations.
        assert c.count_documents({"$expr": {"$gte": ["$n", 0]}}) == 4
        assert threads_of(rs) - before < 40
        session.commit_transaction()
        assert [raw.reply()["nModified"] for raw in raws] == [1] * waiting
        assert scanning.reply()["ok"] == 1
        [raw.socket.close() for raw in raws + [killed, timed, scanning]]
    assert c.find_one({"_id": 1})["n"] >= waiting


def threads_of(client):
    pid = client.admin.command("serverStatus")["pid"]
    return len(os.listdir("/proc/%d/task" % pid))


def test_a_write_that_was_held_up_is_done_once(rs):
    """Writes with a number, of several documents and statements, that wait before or after they have done something."""
    c = rs.tx.c
    c.insert_many([{"_id": n, "n": 0} for n in range(6)])
    c.create_index("u", unique=True, sparse=True)

    def beside(locked, work):
        with rs.start_session() as session:
            session.start_transaction()
            locked(session)
            failures = []

            def run():
                try:
                    work()
                except Exception as error:  # noqa: BLE001
                    failures.append(error)

            worker = threading.Thread(target=run)
            worker.start()
            worker.join(0.05)
            assert worker.is_alive(), failures
            session.commit_transaction()
            worker.join(30)
            assert not worker.is_alive() and not failures, failures

    lock = lambda n: lambda s: c.update_one({"_id": n}, {"$inc": {"by": 1}}, session=s)  # noqa: E731
    beside(lock(3), lambda: c.update_one({"_id": 3}, {"$inc": {"n": 1}}))
    beside(lock(3), lambda: c.update_many({}, {"$inc": {"n": 1}}))
    increment = lambda n: pymongo.UpdateOne({"_id": n}, {"$inc": {"n": 1}})  # noqa: E731
    for ordered in (True, False):
        beside(lock(3), lambda: c.bulk_write([increment(n) for n in (3, 4, 5)], ordered=ordered))  # noqa: B023
        beside(lock(5), lambda: c.bulk_write([increment(n) for n in (3, 4, 5)], ordered=ordered))  # noqa: B023
    beside(lock(2), lambda: c.find_one_and_update({"_id": 2}, {"$inc": {"n": 10}}))
    assert {doc["_id"]: doc["n"] for doc in c.find()} == {0: 1, 1: 1, 2: 11, 3: 6, 4: 5, 5: 5}
    beside(lock(0), lambda: c.delete_one({"_id": 0}))
    insert = lambda s: c.insert_one({"_id": 50, "u": 1}, session=s)  # noqa: E731
    beside(insert, lambda: c.update_one({"_id": 50}, {"$set": {"late": 1}}, upsert=True))
    assert c.find_one({"_id": 50}) == {"_id": 50, "u": 1, "late": 1}
    with pytest.raises(AssertionError, match="DuplicateKeyError|E11000"):
        beside(lambda s: c.insert_one({"_id": 60, "u": 2}, session=s), lambda: c.insert_many([{"_id": 61, "u": 2}, {"_id": 62}]))
    assert c.count_documents({"_id": {"$gte": 60}}) == 1
    assert rs.tx.command("validate", "c")["valid"]


CAPPED = "Collection 'tx.capped' is a capped collection. Writes in transactions are not allowed on capped collections."


@pytest.mark.parametrize("command,code,words", [
    ({"update": "series", "updates": [{"q": {}, "u": {"$set": {"m": 2}}, "multi": True}]}, 263,
     "Cannot perform a multi-document transaction on a time-series collection: tx.series"),
    ({"delete": "series", "deletes": [{"q": {"m": 1}, "limit": 0}]}, 263,
     "Cannot perform a multi-document transaction on a time-series collection: tx.series"),
    ({"find": "united"}, 263, "Stage not supported inside of a multi-document transaction: $unionWith"),
    ({"aggregate": "c", "pipeline": [{"$lookup": {"from": "united", "pipeline": [], "as": "x"}}], "cursor": {}}, 263,
     "Stage not supported inside of a multi-document transaction: $unionWith"),
    ({"update": "capped", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}}]}, 263, CAPPED),
    ({"delete": "capped", "deletes": [{"q": {"a": 1}, "limit": 1}]}, 20,
     "Cannot remove from a capped collection in a multi-document transaction: tx.capped"),
    ({"findAndModify": "capped", "query": {"a": 1}, "remove": True}, 263, CAPPED),
])
def test_what_has_no_place_in_a_transaction(rs, command, code, words):
    """Also where no document matches."""
    rs.tx.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    rs.tx.create_collection("capped", capped=True, size=4096)
    rs.tx.create_collection("united", viewOn="c", pipeline=[{"$unionWith": "d"}])
    with rs.start_session() as session:
        session.start_transaction()
        reply = rs.tx.command(command, session=session, check=False)
        if reply["ok"]:
            reply = reply["writeErrors"][0]
        assert (reply["code"], reply["errmsg"]) == (code, words)
        session.abort_transaction()
