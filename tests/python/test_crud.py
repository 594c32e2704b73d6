"""Documents go in, change, come out and go away, as an application does it through pymongo."""
import datetime
import re
import threading
import uuid

import bson
import bson.raw_bson
import pymongo
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError


def ids(documents):
    return [d["_id"] for d in documents]


def test_every_bson_type_comes_back_as_it_went_in(c):
    document = {
        "_id": ObjectId(), "double": 1.5, "string": "grüße\u0000x", "doc": {"a": {"b": []}}, "array": [1, "x", None],
        "binary": b"\x00\xff", "uuid": Binary.from_uuid(uuid.uuid4()), "true": True, "false": False,
        "date": datetime.datetime(1969, 12, 31, 23, 59, 59, 123000), "null": None, "regex": Regex("^a.*$", "ix"),
        "code": Code("function() {}"), "scope": Code("f", {"x": 1}), "int": -1, "long": Int64(2**62),
        "timestamp": Timestamp(1700000000, 7), "decimal": Decimal128("1.10"), "min": MinKey(), "max": MaxKey(),
        "nan": float("nan"), "negative zero": -0.0, "infinity": float("-inf"), "empty": {}, "": "empty name",
    }
    c.insert_one(document)
    back = c.find_one({"_id": document["_id"]})
    assert list(back) == list(document)
    assert bson.encode(back) == bson.encode(document)


def test_insert_makes_an_id_and_says_so(c):
    result = c.insert_one({"x": 1})
    assert isinstance(result.inserted_id, ObjectId)
    assert c.insert_many([{"x": 2}, {"_id": "mine"}]).inserted_ids[1] == "mine"
    assert c.count_documents({}) == 3


def test_a_second_document_of_the_same_id_is_refused(c):
    c.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError) as error:
        c.insert_one({"_id": 1.0})
    assert error.value.code == 11000
    assert error.value.details["keyPattern"] == {"_id": 1}
    assert error.value.details["keyValue"] == {"_id": 1.0}


@pytest.mark.parametrize("ordered, inserted, errors", [(True, 2, 1), (False, 3, 2)])
def test_insert_many_stops_or_goes_on_at_an_error(c, ordered, inserted, errors):
    with pytest.raises(BulkWriteError) as error:
        c.insert_many([{"_id": 1}, {"_id": 2}, {"_id": 1}, {"_id": 3}, {"_id": 2}], ordered=ordered)
    assert error.value.details["nInserted"] == inserted
    assert [e["index"] for e in error.value.details["writeErrors"]] == [2, 4][:errors]
    assert c.count_documents({}) == inserted


def test_a_bulk_of_every_kind(c):
    c.insert_many([{"_id": i, "n": i} for i in range(5)])
    result = c.bulk_write([
        InsertOne({"_id": 10, "n": 10}), UpdateOne({"_id": 0}, {"$inc": {"n": 100}}),
        UpdateMany({"n": {"$lt": 3}}, {"$set": {"small": True}}), ReplaceOne({"_id": 4}, {"new": 1}),
        DeleteOne({"_id": 1}), DeleteMany({"small": True}), UpdateOne({"_id": 77}, {"$set": {"n": 7}}, upsert=True),
    ])
    assert (result.inserted_count, result.matched_count, result.modified_count) == (1, 4, 4)
    assert (result.deleted_count, result.upserted_ids) == (2, {6: 77})
    assert sorted(c.find(), key=lambda d: d["_id"]) == [
        {"_id": 0, "n": 100}, {"_id": 3, "n": 3}, {"_id": 4, "new": 1}, {"_id": 10, "n": 10}, {"_id": 77, "n": 7}]


@pytest.mark.parametrize("ordered, done", [(True, 1), (False, 2)])
def test_a_bulk_with_an_error_in_it(c, ordered, done):
    c.insert_one({"_id": 1, "n": "text"})
    with pytest.raises(BulkWriteError) as error:
        c.bulk_write([InsertOne({"_id": 2}), UpdateOne({"_id": 1}, {"$inc": {"n": 1}}), InsertOne({"_id": 3})],
                     ordered=ordered)
    assert error.value.details["nInserted"] == done
    assert error.value.details["writeErrors"][0]["code"] == 14
    assert "Cannot apply $inc to a value of non-numeric type" in error.value.details["writeErrors"][0]["errmsg"]


def test_the_only_document_of_an_id_is_skipped_too(c):
    c.insert_one({"_id": 1, "x": 2})
    assert list(c.find({"_id": 1})) == [{"_id": 1, "x": 2}]
    assert list(c.find({"_id": 1}).skip(1)) == []
    assert list(c.find({"_id": 1}, {"x": 1}).skip(1)) == []


def test_find_with_filter_sort_skip_limit_projection(c):
    c.insert_many([{"_id": i, "a": i % 3, "b": {"c": [i, i + 1]}} for i in range(20)])
    assert ids(c.find({"a": 1, "_id": {"$gt": 5}}).sort("_id", -1).skip(1).limit(2)) == [16, 13]
    assert c.find_one({"b.c": 7}, {"b.c": 1, "_id": 0}, sort=[("_id", 1)]) == {"b": {"c": [6, 7]}}
    assert ids(c.find({"$or": [{"_id": 3}, {"b.c.1": 9}]}).sort("_id")) == [3, 8]
    assert ids(c.find({"_id": {"$in": [4, 2, 99]}}).sort([("a", 1), ("_id", 1)])) == [4, 2]
    assert ids(c.find({"_id": {"$not": {"$gte": 2}}}).sort("_id")) == [0, 1]


@pytest.mark.parametrize("filter, expected", [
    ({"name": re.compile("^al", re.I)}, [1, 2]),
    ({"name": {"$exists": False}}, [4]),
    ({"tags": {"$all": ["x", "y"]}}, [2]),
    ({"tags": {"$size": 1}}, [1]),
    ({"tags": {"$elemMatch": {"$gt": "x"}}}, [2]),
    ({"age": {"$type": "double"}}, [2]),
    ({"age": {"$mod": [10, 1]}}, [1]),
    ({"age": None}, [4]),
    ({"$expr": {"$gt": ["$age", 40]}}, [1, 3]),
    ({"$nor": [{"age": {"$gte": 0}}]}, [4]),
])
def test_filters(c, filter, expected):
    c.insert_many([{"_id": 1, "name": "Alice", "age": 41, "tags": ["x"]},
                   {"_id": 2, "name": "alan", "age": 30.5, "tags": ["x", "y"]},
                   {"_id": 3, "name": "Bob", "age": 50}, {"_id": 4}])
    assert sorted(ids(c.find(filter))) == expected


@pytest.mark.parametrize("update, expected", [
    ({"$set": {"a.b": 1, "new": None}}, {"_id": 1, "n": 1, "l": [1, 2, 3], "a": {"b": 1}, "new": None}),
    ({"$unset": {"n": ""}}, {"_id": 1, "l": [1, 2, 3]}),
    ({"$inc": {"n": 2.5}}, {"_id": 1, "n": 3.5, "l": [1, 2, 3]}),
    ({"$mul": {"n": 3}, "$min": {"m": 1}}, {"_id": 1, "n": 3, "l": [1, 2, 3], "m": 1}),
    ({"$push": {"l": {"$each": [9, 8], "$sort": -1, "$slice": 4}}}, {"_id": 1, "n": 1, "l": [9, 8, 3, 2]}),
    ({"$pull": {"l": {"$gte": 2}}}, {"_id": 1, "n": 1, "l": [1]}),
    ({"$addToSet": {"l": 3}}, {"_id": 1, "n": 1, "l": [1, 2, 3]}),
    ({"$pop": {"l": -1}}, {"_id": 1, "n": 1, "l": [2, 3]}),
    ({"$rename": {"n": "m"}}, {"_id": 1, "l": [1, 2, 3], "m": 1}),
    ([{"$set": {"s": {"$sum": "$l"}}}, {"$unset": "l"}], {"_id": 1, "n": 1, "s": 6}),
])
def test_updates(c, update, expected):
    c.insert_one({"_id": 1, "n": 1, "l": [1, 2, 3]})
    c.update_one({"_id": 1}, update)
    assert bson.encode(c.find_one()) == bson.encode(expected)


def test_update_reports_what_matched_and_what_changed(c):
    c.insert_many([{"_id": i, "n": i % 2} for i in range(4)])
    result = c.update_many({}, {"$set": {"n": 1}})
    assert (result.matched_count, result.modified_count) == (4, 2)
    result = c.update_one({"k": 5}, {"$set": {"v": 1}, "$setOnInsert": {"o": 2}}, upsert=True)
    assert (result.matched_count, c.find_one({"_id": result.upserted_id}, {"_id": 0})) == (0, {"k": 5, "v": 1, "o": 2})


def test_array_filters_and_positional_updates(c):
    c.insert_one({"_id": 1, "items": [{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 2, "v": 3}]})
    c.update_one({"_id": 1}, {"$inc": {"items.$[i].v": 10}}, array_filters=[{"i.k": 2}])
    c.update_one({"items.k": 1}, {"$set": {"items.$.v": 7}})
    assert [i["v"] for i in c.find_one()["items"]] == [7, 12, 13]


def test_what_an_update_may_not_do(c):
    c.insert_one({"_id": 1, "s": "x"})
    for update, code in [({"$set": {"_id": 2}}, 66), ({"$inc": {"s": 1}}, 14), ({"$nope": {"a": 1}}, 9),
                         ({"$set": {"a": 1}, "$unset": {"a": 1}}, 40), ({"$push": {"s": 1}}, 2)]:
        with pytest.raises(WriteError) as error:
            c.update_one({"_id": 1}, update)
        assert error.value.code == code, update


def test_replace_and_delete(c):
    c.insert_many([{"_id": i} for i in range(5)])
    assert c.replace_one({"_id": 1}, {"a": 1}).modified_count == 1
    assert c.find_one({"_id": 1}) == {"_id": 1, "a": 1}
    assert c.delete_one({}).deleted_count == 1
    assert c.delete_many({"_id": {"$gt": 2}}).deleted_count == 2
    assert c.delete_many({"_id": 99}).deleted_count == 0
    assert c.estimated_document_count() == 2


def test_find_and_modify(c):
    c.insert_many([{"_id": i, "n": i} for i in range(3)])
    assert c.find_one_and_update({}, {"$inc": {"n": 10}}, sort=[("n", -1)]) == {"_id": 2, "n": 2}
    assert c.find_one_and_update({"_id": 1}, {"$set": {"x": 1}}, return_document=ReturnDocument.AFTER,
                                 projection={"_id": 0}) == {"n": 1, "x": 1}
    assert c.find_one_and_replace({"_id": 7}, {"v": 1}, upsert=True, return_document=ReturnDocument.AFTER) == {
        "_id": 7, "v": 1}
    assert c.find_one_and_delete({"_id": 0}) == {"_id": 0, "n": 0}
    assert c.find_one_and_delete({"_id": 0}) is None
    assert sorted(ids(c.find())) == [1, 2, 7]


def test_distinct_and_count(c):
    c.insert_many([{"_id": i, "a": i % 3, "l": [i, "x"]} for i in range(9)])
    assert c.distinct("a", {"_id": {"$gt": 0}}) == [0, 1, 2]
    assert set(c.distinct("l", {"a": 0})) == {0, 3, 6, "x"}
    assert c.count_documents({"a": 1}, limit=2) == 2
    assert c.count_documents({"a": 1}, skip=1) == 2
    assert c.database.command("count", "c", query={"a": 2})["n"] == 3


def test_aggregation(c):
    c.insert_many([{"_id": i, "k": i % 2, "v": i, "l": [i, i]} for i in range(6)])
    assert list(c.aggregate([{"$match": {"v": {"$gt": 0}}}, {"$group": {"_id": "$k", "s": {"$sum": "$v"}}},
                             {"$sort": {"_id": 1}}])) == [{"_id": 0, "s": 6}, {"_id": 1, "s": 9}]
    assert list(c.aggregate([{"$unwind": "$l"}, {"$count": "n"}])) == [{"n": 12}]
    assert list(c.aggregate([{"$sort": {"v": -1}}, {"$limit": 1}, {"$project": {"d": {"$multiply": ["$v", 2]}}}])) == [
        {"_id": 5, "d": 10}]


def test_a_document_keeps_the_order_of_its_fields(c):
    c.insert_one({"z": 1, "_id": 5, "a": {"y": 1, "x": 2}})
    assert list(c.find_one()) == ["_id", "z", "a"]
    c.update_one({}, {"$set": {"b": 1, "a.w": 3}})
    assert list(c.find_one()) == ["_id", "z", "a", "b"]
    assert list(c.find_one()["a"]) == ["y", "x", "w"]


def test_errors_have_their_codes(c):
    for run, code, name in [
            (lambda: list(c.find({"$nope": 1})), 2, "BadValue"),
            (lambda: list(c.aggregate([{"$nope": 1}])), 40324, "Location40324"),
            (lambda: c.database.command("nope"), 59, "CommandNotFound"),
            (lambda: c.database.command("find", ""), 73, "InvalidNamespace"),
            (lambda: c.database.command("insert", "c"), 40414, "IDLFailedToParse"),
            (lambda: c.database.command("getMore", Int64(123), collection="c"), 43, "CursorNotFound")]:
        with pytest.raises(OperationFailure) as error:
            run()
        assert (error.value.code, error.value.details["codeName"]) == (code, name)


@pytest.mark.parametrize("sort, keys", [
    ([("_id", 1)], {1: [1], 2: [2], 3: [3]}),
    ([("a", 1)], {1: [1], 2: [None], 3: [None]}),
    ([("a", -1), ("_id", 1)], {1: [3, 1], 2: [None, 2], 3: [None, 3]}),
    ([("n.q.z", 1)], {1: [None], 2: [1], 3: [None]}),
    ([("n.q.z", -1)], {1: [None], 2: [2], 3: [None]}),
])
def test_what_documents_are_sorted_by_can_be_shown(c, sort, keys):
    c.insert_many([{"_id": 1, "a": [3, 1], "b": "x"}, {"_id": 2, "a": [], "n": {"q": [{"z": 2}, {"z": 1}]}}, {"_id": 3}])
    for _ in range(2):
        shown = {d["_id"]: d["key"] for d in c.find({}, {"key": {"$meta": "sortKey"}}, sort=sort)}
        assert shown == keys
        c.create_index(sort)


def test_the_index_entry_that_led_to_a_document_can_be_shown(c):
    c.insert_many([{"_id": 1, "a": 5}, {"_id": 2, "a": 7}])
    c.create_index("a")
    assert [d["key"] for d in c.find({"a": {"$gt": 1}}, {"key": {"$meta": "indexKey"}})] == [{"a": 5}, {"a": 7}]
    assert all("key" not in d for d in c.find({}, {"key": {"$meta": "indexKey"}}))


def test_a_sort_key_needs_a_sort(c):
    c.insert_one({"_id": 1})
    for refused in (lambda: list(c.find({}, {"key": {"$meta": "sortKey"}})),
                    lambda: c.find_one_and_update({}, {"$set": {"x": 1}}, {"key": {"$meta": "sortKey"}}, sort=[("a", 1)])):
        with pytest.raises(OperationFailure) as failed:
            refused()
        assert failed.value.code == 2


@pytest.mark.parametrize("name, code, text", [
    ("$x", 9, "Invalid 'let' parameter :: caused by :: '$x' starts with an invalid character for a user variable name"),
    ("NOW", 4738901, "Attempt to set internal constant: NOW"),
])
def test_variables_of_a_command_have_names_of_their_own(c, name, code, text):
    run = c.database.command
    for command in [{"find": c.name}, {"aggregate": c.name, "pipeline": [], "cursor": {}}]:
        with pytest.raises(OperationFailure) as error:
            run({**command, "let": {name: 1}})
        assert (error.value.code, error.value.details["errmsg"]) == (code, text)
    failed = run({"update": c.name, "updates": [{"q": {}, "u": {"$set": {"a": 1}}}], "let": {name: 1}})["writeErrors"]
    assert (failed[0]["code"], failed[0]["errmsg"]) == (code, text)


@pytest.mark.parametrize("name, code", [("$x", 9), ("", 9), ("NOW", 17275), ("ROOT", 17275)])
def test_constants_of_an_update_have_names_of_their_own(c, name, code):
    statement = {"q": {}, "u": [{"$set": {"a": 1}}], "c": {name: 1}}
    assert c.database.command({"update": c.name, "updates": [statement]})["writeErrors"][0]["code"] == code


def test_a_document_has_one_id(c):
    twice = b"".join(bson.encode({"_id": n})[4:-1] for n in (1, 2))
    twice = bson.raw_bson.RawBSONDocument((len(twice) + 5).to_bytes(4, "little") + twice + b"\0")
    reply = c.database.command({"insert": c.name, "documents": [twice]})
    assert [(e["code"], e["errmsg"]) for e in reply["writeErrors"]] == [
        (2, "can't have multiple _id fields in one document")]
    assert c.count_documents({}) == 0


def test_each_timestamp_of_an_update_is_another(c):
    stamp, empty = {"$type": "timestamp"}, Timestamp(0, 0)
    c.insert_many([{"_id": 0, "l": [1, 2, {}]}, {"_id": 1}, {"_id": 2}])
    c.update_one({"_id": 0}, {"$currentDate": {"l.$[]": stamp, "a": stamp}})
    c.update_many({"_id": {"$in": [1, 2]}}, {"$currentDate": {"a": stamp, "b": stamp}})
    c.update_one({"_id": 3}, {"$currentDate": {"a": stamp, "b": stamp}}, upsert=True)
    c.replace_one({"_id": 4}, {"a": empty, "b": empty}, upsert=True)
    c.replace_one({"_id": 4}, {"a": empty, "b": empty})
    c.insert_one({"_id": 5, "a": empty})
    documents = list(c.find({}, {"_id": 0}))
    times = [time for d in documents for time in [*d.pop("l", []), *d.values()]]
    assert len(times) == 13
    assert len(set(times)) == 13
    assert all(time.time > 0 for time in times)


def test_a_filter_may_use_the_constants_of_its_update(c):
    c.insert_many([{"_id": 1, "x": 1}, {"_id": 2, "x": 2}])

    def update(q, u, **more):
        return c.database.command("update", c.name, updates=[{"q": q, "u": u, "c": {"w": 2}, "multi": True, **more}])
    of_constant = {"$expr": {"$eq": ["$x", "$$w"]}}
    assert update(of_constant, [{"$set": {"z": "$$w"}}])["nModified"] == 1
    assert c.find_one({"z": 2}) == {"_id": 2, "x": 2, "z": 2}
    assert update({"$expr": {"$eq": ["$x", "$$q"]}}, [])["writeErrors"][0]["code"] == 17276
    assert update(of_constant, {"$set": {"z": 1}})["writeErrors"][0]["code"] == 51198


@pytest.mark.parametrize("limit, shown", [
    (2, "2"), (123456789, "1.23457e+08"), (Int64(9223372036854775806), "9.22337e+18"), (1.5, "1.5"), (Decimal128("1E+40"), "1e+40"),
])
def test_a_limit_of_a_delete_is_shown_with_six_digits(c, limit, shown):
    with pytest.raises(OperationFailure) as failed:
        c.database.command("delete", c.name, deletes=[{"q": {}, "limit": limit}])
    assert failed.value.details["errmsg"] == f"The limit field in delete objects must be 0 or 1. Got {shown}"


def test_a_pipeline_takes_an_empty_list_of_array_filters(c):
    c.insert_one({"_id": 1})
    pipeline = [{"$set": {"b": 1}}]

    def answer(filters):
        command = {"update": c.name, "updates": [{"q": {}, "u": pipeline, "arrayFilters": filters}]}
        return c.database.command(command)

    assert answer([])["nModified"] == 1
    error, = answer([{"x": 1}])["writeErrors"]
    assert (error["code"], error["errmsg"]) == (9, "arrayFilters may not be specified for pipeline-style updates")
    with pytest.raises(OperationFailure, match="Cannot specify arrayFilters and a pipeline update"):
        c.database.command("findAndModify", c.name, query={}, update=pipeline, arrayFilters=[])


def test_a_sorted_queue_is_emptied_by_many(uri, c):
    """Each gets a document of its own, in order, although others take the first ones away under it."""
    c.insert_many([{"_id": n, "priority": n * 7919 % 1009} for n in range(1_000)])
    orders = []

    def take_all():
        with pymongo.MongoClient(uri) as client:
            mine, own = client[c.database.name][c.name], []
            while taken := mine.find_one_and_delete({}, sort=[("priority", -1)]):
                own.append(taken["priority"])
            orders.append(own)

    threads = [threading.Thread(target=take_all) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(orders) == 12
    assert all(own == sorted(own, reverse=True) for own in orders)
    assert sorted(priority for own in orders for priority in own) == sorted(n * 7919 % 1009 for n in range(1_000))


def test_a_sort_for_one_document_needs_no_memory_for_all(c):
    c.insert_many([{"n": n, "text": "x" * 10_000} for n in range(12_000)])
    assert c.find_one_and_update({}, {"$set": {"done": 1}}, sort=[("n", -1)])["n"] == 11_999
    assert c.find_one_and_delete({"done": None}, sort=[("n", 1)])["n"] == 0
