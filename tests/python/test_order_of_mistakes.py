"""Of several errors the one that mongod reports, and the state after a command that fails.

Every row holds on mongod 6.0, too.
"""
import datetime
import time

import pytest
from bson import Binary, Decimal128, encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure


def failure(db, command):
    """The code and the message of the error of a command, or of its first write; 0 where there is none."""
    try:
        reply = db.command(command)
    except OperationFailure as error:
        return error.code, error.details["errmsg"]
    errors = reply.get("writeErrors") or [{"code": 0, "errmsg": ""}]
    return errors[0]["code"], errors[0]["errmsg"]


def code(db, command):
    return failure(db, command)[0]


def path(parts):
    return ".".join(["a"] * parts)


@pytest.mark.parametrize("spec, told", [
    ({"key": {}, "name": "x"}, 67), ({"key": {"a": 1}}, 9), ({"key": {"a": 1}, "name": "x", "zzz": 1}, 197),
    ({"key": {"a": 1}, "name": "*"}, 2), ({"key": {"_id": 1}, "name": "x", "sparse": True}, 197),
    ({"key": {"a": 1}, "name": "x", "expireAfterSeconds": -1}, 361), ({"key": {"a": 1}, "name": ""}, 361),
    ({"key": {"a": 1}, "name": "x", "collation": {"locale": "zz"}}, 361),
])
def test_the_form_of_an_index_comes_before_its_collection(db, spec, told):
    db.c.insert_one({})
    uuid = Binary(bytes(16), 4)
    good = {"key": {"z": 1}, "name": "z", "expireAfterSeconds": -1}
    for specs in ([spec], [good, spec]):
        assert code(db, {"createIndexes": "c", "indexes": specs, "collectionUUID": uuid}) == told
    db.create_collection("seen", viewOn="c", pipeline=[])
    assert code(db, {"createIndexes": "seen", "indexes": [spec]}) == (166 if told == 361 else told)


TOO_LONG = 5729100


@pytest.mark.parametrize("parts, told", [(180, 0), (181, TOO_LONG), (250, TOO_LONG)])
def test_a_filter_has_paths_of_180_parts(db, parts, told):
    long = {path(parts): 1}
    for number, command in enumerate([
        {"find": "c", "filter": long},
        {"count": "c", "query": long},
        {"find": "c", "filter": {"$or": [{"b": 1}, long]}},
        {"find": "c", "filter": {"b": {"$elemMatch": long}}},
        {"find": "c", "filter": {path(parts): {"$not": {"$gt": 1}}}},
        {"delete": "c", "deletes": [{"q": long, "limit": 1}]},
        {"update": "c", "updates": [{"q": {}, "u": {"$pull": {"z": long}}}]},
        {"update": "c", "updates": [
            {"q": {}, "u": {"$set": {"z.$[e]": 1}}, "arrayFilters": [{"e." + path(parts - 1): 1}]}]},
        {"aggregate": "c", "pipeline": [{"$match": long}], "cursor": {}},
        {"create": "checked", "validator": long},
        {"create": "seen", "viewOn": "c", "pipeline": [{"$match": long}]},
        {"createIndexes": "c", "indexes": [
            {"key": {"b": 1}, "name": "partial", "partialFilterExpression": long}]},
    ]):
        assert code(db, command) == told, number


def test_what_is_wrong_below_a_long_path_is_not_reached(db):
    assert code(db, {"find": "c", "filter": {path(181): {"$foo": 1}}}) == TOO_LONG
    assert code(db, {"find": "c", "filter": {"$foo": 1, path(181): 1}}) == 2
    # Two halves are not one path, and a schema's names are none.
    halves = {path(100): {"$elemMatch": {path(100): 1}}}
    assert code(db, {"find": "c", "filter": halves}) == 0
    schema = {"$jsonSchema": {"properties": {path(200): {"minimum": 1}}}}
    assert code(db, {"find": "c", "filter": schema}) == 0


@pytest.mark.parametrize("projection, told", [
    ({path(200): {"c": 1}}, 15), ({path(200): {"c": 0}}, 15), ({path(200): {"c": {"d": 1}}}, 15),
    ({path(200): {"c": 0}, "a": 1}, 31250), ({"a": 1, path(200): {"b": 1}}, 31249),
    ({path(200): {"c": 0}, "b": 1}, 31253), ({path(200): {"c": 1}, "b": 0}, 31254),
    ({path(200): {"c": 1}, "b": {"$foo": 1}}, 31325), ({path(200): {"c": 1}, "b.": 1}, 40353),
    ({path(200): {"c": 1}, "$b": 1}, 16410), ({path(200): {"c": 1}, "b": ""}, 15),
])
def test_a_path_that_nested_fields_make_too_long_comes_after_other_mistakes(db, projection, told):
    db.c.insert_one({})
    assert code(db, {"find": "c", "projection": projection}) == told
    assert code(db, {"aggregate": "c", "pipeline": [{"$project": projection}], "cursor": {}}) == told


GOOD = {"q": {"_id": 1}, "u": {"$set": {"x": 1}}, "upsert": True}
UNKNOWN = {"q": {}, "u": [{"$foo": 1}]}


@pytest.mark.parametrize("updates, ordered, ids", [
    ([{**UNKNOWN, "upsert": True}], True, []),
    ([UNKNOWN], True, None),
    ([GOOD, UNKNOWN], True, [1]),
    ([UNKNOWN, GOOD], True, None),
    ([UNKNOWN, GOOD], False, [1]),
    ([{"q": {"$foo": 1}, "u": {"$set": {"a": 1}}}, {**UNKNOWN, "upsert": True}], True, None),
    ([GOOD, {"q": {}, "u": [{}]}], True, [1]),
    ([GOOD, {"q": {}, "u": [1]}], True, None),
    ([GOOD, {"q": {}, "u": [{"$facet": {"a": [{"$foo": 1}]}}]}], True, [1]),
    ([GOOD, {"q": {}, "u": [{"$set": {"a": {"$foo": 1}}}, {"$unionWith": {"coll": "x", "pipeline": [{"$foo": 1}]}}]}], True, [1]),
    ([GOOD, {"q": {}, "u": [{"$lookup": 1}]}], True, [1]),
    ([GOOD, {"q": {}, "u": [{"$lookup": {"from": "x", "as": "y", "pipeline": [{"$foo": 1}]}}]}], True, [1]),
    ([GOOD, {"q": {}, "u": [{"$graphLookup": {}}]}], True, [1]),
])
def test_an_unknown_stage_fails_an_update_behind_what_it_has_done(db, updates, ordered, ids):
    with pytest.raises(OperationFailure) as told:
        db.command({"update": "c", "updates": updates, "ordered": ordered})
    assert told.value.code in (40324, 40323, 14, 9)
    assert ("c" in db.list_collection_names()) == (ids is not None)
    assert [found["_id"] for found in db.c.find()] == (ids or [])


@pytest.mark.parametrize("make", [
    lambda seconds: {"create": "made", "timeseries": {"timeField": "t"}, "expireAfterSeconds": seconds},
    lambda seconds: {"create": "made", "clusteredIndex": {"key": {"_id": 1}, "unique": True},
                     "expireAfterSeconds": seconds},
    lambda seconds: {"collMod": "times", "expireAfterSeconds": seconds},
    lambda seconds: {"collMod": "clustered", "expireAfterSeconds": seconds},
])
def test_documents_expire_after_no_more_time_than_there_has_been(db, make):
    db.command({"create": "times", "timeseries": {"timeField": "t"}})
    db.command({"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    now = int(time.time())
    for seconds, told, kept in [
        (now - 1000, 0, now - 1000), (now + 1000, 72, None), (2147483646.5, 72, None), (2**31, 72, None),
        (2**63 - 1, 72, None), (-0.5, 0, 0), (-1, 72, None), (1.9, 0, 1), (Decimal128("1.9"), 0, 2),
        (Decimal128("-0.9"), 72, None), (float("nan"), 0, 0),
    ]:
        command = make(seconds)
        assert code(db, command) == told, seconds
        name = next(iter(command.values()))
        if told == 0:
            listed = next(db.list_collections(filter={"name": name}))
            assert listed["options"]["expireAfterSeconds"] == kept, seconds
        db.drop_collection("made")


def test_a_fraction_of_an_indexs_seconds_is_cut(db):
    db.c.create_index("a")
    change = {"collMod": "c", "index": {"keyPattern": {"a": 1}, "expireAfterSeconds": -0.5}}
    assert db.command(change)["expireAfterSeconds_new"] == 0
    change["index"]["expireAfterSeconds"] = Decimal128("-0.9")
    assert code(db, change) == 72


@pytest.mark.parametrize("bounds", [
    {"$gt": MinKey()}, {"$gte": MinKey()}, {"$lt": MaxKey()}, {"$gt": MinKey(), "$lt": MaxKey()},
])
def test_ends_of_the_order_are_told_by_an_index_alone(db, bounds):
    db.c.insert_many([{"_id": 1}, {"_id": 2, "c": 5}])
    db.c.create_index("c")
    # An entry does not say whether its field is there.
    assert list(db.c.find({"c": bounds}, {"_id": 0, "c": 1})) == [{"c": None}, {"c": 5}]


@pytest.mark.parametrize("projection, told", [
    ({"c": 1, "c.$": 1}, 224), ({"c.$": 1, "c": 1}, 224), ({"b": 0, "c.$": 1}, 224), ({"c.$": 1, "b.$": 1}, 224),
    ({"b": {"$foo": 1}, "c.$": 1}, 31325), ({"c.$": 1, "b": {"$foo": 1}}, 224), ({"c.$": 0}, 31395),
])
def test_a_projection_tells_where_it_asks_for_positions_that_a_query_has_none(db, projection, told):
    db.c.insert_one({})
    for filter in ({"$expr": True}, {"$jsonSchema": {}}):
        assert code(db, {"find": "c", "filter": filter, "projection": projection}) == told
        change = {"findAndModify": "c", "query": filter, "update": {"$set": {"q": 1}}, "fields": projection}
        assert code(db, change) == told
        assert code(db, {**change, "new": True}) == told
        # Of a collection that is not there nothing is shown.
        assert code(db, {**change, "findAndModify": "none"}) == 0


def test_a_position_in_a_new_document_is_refused_before_constants_are_computed(db):
    db.c.insert_one({})
    change = {"findAndModify": "c", "update": {}, "new": True, "fields": {"b": {"$divide": [1, 0]}, "d.$": True}}
    assert failure(db, change) == (2, "cannot use a positional projection and return the new document")
    assert "divide" in failure(db, {**change, "new": False})[1]


def test_a_walk_in_natural_order_is_asked_for_alone_before_a_projection_is_read(db):
    db.c.insert_one({})
    wrong = {"find": "c", "projection": {"a": 1, "b": 0}}
    assert code(db, {**wrong, "sort": {"$natural": 1, "a": 1}}) == 2
    assert code(db, {**wrong, "sort": {"$natural": 1}, "hint": "a"}) == 2
    assert code(db, {**wrong, "sort": {"a": "x"}}) == 31254
    assert code(db, {**wrong, "sort": {"$natural": 1, "a": 1}, "filter": {"$foo": 1}}) == 2


@pytest.mark.parametrize("query, longer", [
    ({"d": 1, "d.": []}, "path 'd.' is matched twice"),
    ({"d.": 1, "d..": 1}, "path 'd..' is matched twice"),
    ({"": 1, ".": 1}, "path '.' is matched twice"),
    ({"d": 1, "d..": 1}, "both paths 'd..' and 'd' are matched"),
    ({"": 1, ".a": 1}, "both paths '.a' and '' are matched"),
])
def test_an_upsert_takes_an_empty_name_at_the_end_for_the_path_itself(db, query, longer):
    upsert = {"update": "c", "updates": [{"q": query, "u": {"$setOnInsert": {"z": 1}}, "upsert": True}]}
    assert failure(db, upsert) == (54, f"cannot infer query fields to set, {longer}")


@pytest.mark.parametrize("name, told", [
    ("b.$a", 16410), ("a.$a", 16410), ("a.$id", 0), ("a..b", 15998), ("a.", 40353), (".a", 15998), ("", 0), ("$id", 0),
])
def test_a_wildcard_index_knows_paths_of_expressions(db, name, told):
    db.c.insert_one({})
    for filter in ({name: 1}, {"_id": 1, name: 1}, {"$nor": [{name: 1}]}, {"$or": [{name: 1}, {"a": 1}]}):
        assert code(db, {"find": "c", "filter": filter}) == 0
    db.c.create_index([("a.$**", 1)])
    for filter in ({name: 1}, {"_id": 1, name: 1}, {"$nor": [{name: 1}]}, {"$or": [{name: 1}, {"a": 1}]}):
        assert code(db, {"find": "c", "filter": filter}) == told
        assert code(db, {"find": "c", "filter": filter, "hint": "_id_"}) == told
        assert code(db, {"delete": "c", "deletes": [{"q": filter, "limit": 1}]}) == told


def test_distinct_reads_a_path_up_to_a_place_in_an_array(db):
    db.c.insert_one({"c": [{"$a": 5}]})
    for key, told in [
        ("c.0.$a", 0), ("c.00.$a", 0), ("c.0.", 0), ("c.0..a", 0), ("0.1.$a", 0), ("c.$a", 16410), ("0.$a", 16410),
        ("c.-1.$a", 16410), ("c.4294967296.$a", 16410), ("c.", 40353), ("c.$a.0", 16410),
    ]:
        assert code(db, {"distinct": "c", "key": key}) == told, key
    assert db.command({"distinct": "c", "key": "c.0.$a"})["values"] == [5]


def test_a_date_without_an_answer_for_null_is_shown_so(db):
    db.c.insert_one({})
    for written in (
        {"$dateFromString": {"dateString": "$a"}},
        {"$dateFromString": {"dateString": "$a", "onError": "$e"}},
        {"$dateFromString": {"dateString": "$a", "onNull": "$n", "onError": "$e"}},
        {"$dateToString": {"date": "$a"}},
    ):
        explained = db.command({"explain": {"find": "c", "filter": {"$expr": written}}, "verbosity": "queryPlanner"})
        assert explained["queryPlanner"]["parsedQuery"] == {"$expr": written}
    shown = {"d": {"$dateFromString": {"dateString": "$a"}}, "s": {"$dateToString": {"date": "$a"}}, "_id": 0}
    assert list(db.c.find({}, shown)) == [{"d": None, "s": None}]


@pytest.mark.parametrize("query, change, told", [
    ({"x": 1}, {"m": 1}, "when querying on a field that is not the metaField"),
    ({"$expr": {"$foo": 1}}, [{"$set": {"m": 1}}], "Cannot use $expr"),
    ({}, {"m": 1}, "using a replacement document"),
])
def test_a_time_series_tells_of_the_query_before_the_update(db, query, change, told):
    db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    update = {"update": "series", "updates": [{"q": query, "u": change, "multi": True}]}
    assert told in failure(db, update)[1]


@pytest.mark.parametrize("query", [{"x": 1}, {"$foo": 1}, {"x": {"$foo": 1}}, {"$expr": {"$foo": 1}}])
def test_a_time_series_without_meta_field_is_told_first(db, query):
    db.create_collection("bare", timeseries={"timeField": "t"})
    for multi in [False, True]:
        update = {"update": "bare", "updates": [{"q": query, "u": {}, "upsert": True, "multi": multi}]}
        assert "does not have a metaField" in failure(db, update)[1]
        delete = {"delete": "bare", "deletes": [{"q": query, "limit": 1 - multi}]}
        assert "does not have a metaField" in failure(db, delete)[1]


def test_mapreduce_of_a_view_is_told_before_its_pipeline(db):
    db.command("create", "view", viewOn="c")
    aggregate = {"aggregate": "view", "pipeline": [{"$group": 1}], "cursor": {}, "isMapReduceCommand": True}
    assert code(db, aggregate) == 166


@pytest.mark.parametrize("command, told", [
    ({"find": "c", "": 1}, "BSON field 'FindCommandRequest' is an unknown field."),
    ({"update": "c", "updates": [{"q": {}, "u": {}, "": 1}]}, "BSON field 'update.updates' is an unknown field."),
    ({"find": "c", "collation": {"locale": "en", "": 1}}, "BSON field 'collation' is an unknown field."),
    *(({"aggregate": "c", "pipeline": [stage], "cursor": {}}, f"BSON field '{place}' is an unknown field.") for stage, place in [
        ({"$collStats": {"": 1}}, "$collStats"), ({"$collStats": {"latencyStats": {"": 1}}}, "$collStats.latencyStats"),
        ({"$unionWith": {"coll": "x", "": 1}}, "$unionWith"), ({"$changeStream": {"": 1}}, "$changeStream"),
        ({"$densify": {"": 1}}, "$densify"), ({"$fill": {"": 1}}, "$fill"), ({"$merge": {"into": "x", "": 1}}, "$merge"),
        ({"$setWindowFields": {"": 1}}, "$setWindowFields"),
    ]),
    ({"create": "n", "collation": {"locale": 1}},
     "BSON field 'create.collation.locale' is the wrong type 'int', expected type 'string'"),
    ({"distinct": "c", "key": "a", "collation": {"locale": "a"}},
     "unable to parse collation :: caused by :: Field 'locale' is invalid in: { locale: \"a\" }"),
    ({"findAndModify": "c", "remove": True, "writeConcern": 1},
     "BSON field 'findAndModify.writeConcern' is the wrong type 'int', expected type 'object'"),
    ({"count": "c", "limit": Decimal128("2.5")}, "Cannot represent as a 64-bit integer: limit: 2.5"),
    ({"count": "c", "limit": float("nan")}, "Expected an integer, but found NaN in: limit: nan.0"),
])
def test_a_wrong_field_is_told_by_its_path(db, command, told):
    assert failure(db, command)[1] == told


@pytest.mark.parametrize("statement, told", [
    # The limit is read where it stands.
    ({"limit": 4, "x": 1}, 9), ({"x": 1, "limit": 4}, 40415), ({"limit": 4}, 9), ({"limit": 4, "q": 1}, 9), ({"q": 1, "limit": 4}, 14),
    ({"limit": "a", "q": {}, "x": 1}, 40415), ({"limit": 1}, 40414),
])
def test_a_limit_of_a_delete_is_told_in_the_order_of_fields(db, statement, told):
    assert code(db, {"delete": "c", "deletes": [statement]}) == told


@pytest.mark.parametrize("name, told", [
    ("$.$", "Too many positional (i.e. '$') elements found in path '$.$'"),
    ("$.a.$", "Too many positional (i.e. '$') elements found in path '$.a.$'"),
    ("$.", "The update path '$.' contains an empty field name, which is not allowed."),
    ("$.a", "Cannot have positional (i.e. '$') element in the first position in path '$.a'"),
])
def test_a_path_of_an_update_has_several_mistakes(db, name, told):
    assert failure(db, {"update": "c", "updates": [{"q": {}, "u": {"$unset": {name: 1}}}]})[1] == told


@pytest.mark.parametrize("text, told", [
    ("$$a.$", 17276), ("$$a.", 17276), ("$$a..b", 17276), ("$$A.$b", 17276), ("$$ROOT.$", 16410), ("$$NOW.", 40353),
])
def test_a_variable_is_looked_for_before_its_path_is_read(db, text, told):
    assert code(db, {"aggregate": "c", "pipeline": [{"$project": {"x": text}}], "cursor": {}}) == told


@pytest.mark.parametrize("function, number", [
    ("$asin", "1.000000000000000000000000000000001"), ("$acos", "-1.000000000000000000000000000000001"),
    ("$atanh", "1.000000000000000000000000000000001"), ("$acosh", "0.9999999999999999999999999999999999"),
])
def test_a_decimal_just_outside_of_a_functions_domain(db, function, number):
    project = {"$project": {"x": {function: Decimal128(number)}}}
    assert code(db, {"aggregate": "c", "pipeline": [project], "cursor": {}}) == 50989


@pytest.mark.parametrize("more", [
    {}, {"filter": {"$not": 1}}, {"sort": {"a": "x"}}, {"projection": {"a": 1, "b": 0}}, {"awaitData": True}, {"ntoreturn": 1},
])
@pytest.mark.parametrize("documents", [False, True])
def test_fields_of_min_and_max_are_compared_before_a_query_is_read(db, more, documents):
    if documents:
        db.c.insert_one({"_id": 1})
    find = {"find": "c", "min": {"a": 1}, "max": {"b": 1}, **more}
    assert code(db, find) == 51176
    assert code(db, {"explain": find}) == 51176


def test_a_field_that_is_there_twice_has_a_name(db):
    raw = RawBSONDocument(encode({"q": {}, "u": {}})[:-1].replace(b"\x03u\0", b"\x03q\0") + b"\0")
    with pytest.raises(OperationFailure) as failed:
        db.command({"update": "c", "updates": [raw]})
    assert failed.value.details["codeName"] == "IDLDuplicateField"


OTHER_UUID = Binary(bytes(16), 4)
A_VIEW, ANOTHER_UUID, NO_ID = 166, 361, 53


@pytest.mark.parametrize("name, id, told", [
    ("there", 1, ANOTHER_UUID),
    ("there", [1], NO_ID),
    ("gone", 1, ANOTHER_UUID),
    ("gone", [1], NO_ID),
    ("view", 1, A_VIEW),
    ("view", [1], NO_ID),
])
def test_an_insert_tells_of_the_id_then_of_a_view_then_of_another_uuid(db, name, id, told):
    db.create_collection("there")
    db.create_collection("view", viewOn="there", pipeline=[])
    insert = {"insert": name, "documents": [{"_id": id}, {"_id": 2}], "collectionUUID": OTHER_UUID}
    reply = db.command(insert)
    assert (reply["n"], [error["code"] for error in reply["writeErrors"]]) == (0, [told])
    reply = db.command({**insert, "ordered": False})
    codes = [told, A_VIEW if name == "view" else ANOTHER_UUID]
    assert (reply["n"], [error["code"] for error in reply["writeErrors"]]) == (0, codes)
    assert "gone" not in db.list_collection_names()


def test_measurements_for_another_uuid_are_refused_as_a_whole(db):
    db.create_collection("series", timeseries={"timeField": "t"})
    now = datetime.datetime(2020, 1, 1)
    insert = {"insert": "series", "documents": [{"t": now}], "collectionUUID": OTHER_UUID}
    with pytest.raises(OperationFailure) as refused:
        db.command(insert)
    assert refused.value.code == ANOTHER_UUID
    assert refused.value.details["errmsg"].startswith(f"time-series insert failed: {db.name}.series :: caused by")
    assert db.series.count_documents({}) == 0


@pytest.mark.parametrize("name", ["system.views", "a$b", "there"])
@pytest.mark.parametrize("command, field, statement", [
    ("insert", "documents", {}),
    ("update", "updates", {"q": {}, "u": {"$set": {"a": 1}}}),
    ("delete", "deletes", {"q": {}, "limit": 1}),
])
def test_how_many_statements_there_are_is_told_before_where_they_go(db, name, command, field, statement):
    told = failure(db, {command: name, field: [], "isTimeseriesNamespace": True})
    assert told == (16, "Write batch sizes must be between 1 and 100000. Got 0 operations.")
    number, text = failure(db, {command: name, field: [statement], "stmtIds": [1, 2]})
    assert number == 16 and text.startswith("Number of statement ids must match the number of batch entries. Got 2")


POSITIONAL_VALUES = [({}, 31271), ({"x": 1}, 31271), ("text", 31308), (None, 31308), ([], 31308), (0, 31395), (False, 31395)]


@pytest.mark.parametrize("name", ["a..0.$", ".$", "..$", "$.$", "a.$b.$"])
@pytest.mark.parametrize("value, told", POSITIONAL_VALUES)
def test_the_value_of_a_positional_field_is_read_before_its_path(db, name, value, told):
    assert code(db, {"find": "c", "projection": {name: value}}) == told
    assert code(db, {"find": "c", "projection": {"k": {name: value}}}) in (told, 31325)


def test_a_path_into_a_reference_is_no_operator(db):
    db.c.insert_one({"_id": 1, "k": {"a": 1, "b": 2}})
    assert failure(db, {"find": "c", "projection": {".$": 1}}) == (5392900, "Projection on field .$ is invalid")
    assert list(db.c.aggregate([{"$project": {"k": {"$id.a": 1}}}])) == [{"_id": 1, "k": {}}]
    assert code(db, {"find": "c", "projection": {"k": {"$id.": 1}}}) == 31325


@pytest.mark.parametrize("key, told", [
    ("$a", 16410), ("", 40352), ("a..b", 15998), ("a.", 40353), (".$", 5392900), ("a.$.b", 31394), ("a.$", 224),
])
@pytest.mark.parametrize("name", ["c", "gone", "view"])
def test_the_key_of_a_distinct_is_read_before_constants_are_computed(db, name, key, told):
    db.c.insert_one({"_id": 1})
    db.create_collection("view", viewOn="c", pipeline=[])
    for wrong in ({"$tsSecond": 1}, {"$ln": -1}):
        assert code(db, {"distinct": name, "key": key, "query": {"$expr": wrong}}) == told
    assert code(db, {"distinct": name, "key": key, "query": {"$text": {"$search": "x"}}}) == 27
    assert code(db, {"distinct": name, "key": key, "query": {"$bad": 1}}) == 2


def test_what_a_difference_adds_is_compared_with_the_rest_last(db):
    db.c.insert_one({"_id": 1})
    diff = {"u": {"c": 1, "a": 1}, "i": {"a": 1, "b": 1}, "sb": {"u": {"x": 1}}}
    entry = {"op": "u", "ns": f"{db.name}.c", "o2": {"_id": 1}, "o": {"$v": 2, "diff": diff}}
    assert failure(db, {"applyOps": [entry]}) == (4728000, "duplicate field name in diff: a")


@pytest.mark.parametrize("options, told", [
    ({"collation": {"strength": 9}, "max": 1}, 51024),
    ({"clusteredIndex": 1, "max": 1, "collation": {"locale": "en", "zz": 1}}, 40415),
    ({"viewOn": "", "size": -5}, 2),
    ({"viewOn": "", "zz": 1}, 2),
    ({"size": -5, "viewOn": ""}, 51024),
    ({"validationLevel": "x", "viewOn": ""}, 2),
    ({"viewOn": "a", "validator": {"$size": 1}}, 2),
    ({"viewOn": "a$b", "validator": {"a": {"$near": [0, 0]}}}, 5626500),
    ({"viewOn": "a", "pipeline": [{"$bad": 1}], "expireAfterSeconds": 1}, 72),
    ({"viewOn": "a", "encryptedFields": {"fields": []}}, 6346401),
])
def test_the_form_of_each_option_of_a_collection_is_read_first(db, options, told):
    assert code(db, {"create": "c", **options}) == told


@pytest.mark.parametrize("search", ["$near", "$nearSphere", "$geoNear"])
def test_a_search_by_distance_finds_no_places_in_arrays(db, search):
    db.c.create_index([("g", "2d")])
    query = {"g": {search: [1, 1]}}
    assert code(db, {"find": "c", "filter": query, "projection": {"g.$": 1}}) == 5626500
    assert code(db, {"distinct": "c", "key": "g.$", "query": query}) == 5626500
    assert code(db, {"find": "c", "filter": query}) == 0


@pytest.mark.parametrize("inner", [{"$gt": 1, "$id": 1}, {"$x": 1, "$ref": "a"}, {"$eq": 1, "x": 1, "$db": 1}])
def test_an_elem_match_with_a_field_of_a_reference_has_no_operators(db, inner):
    first = next(iter(inner))
    for condition in ({"$elemMatch": inner}, {"$not": {"$elemMatch": inner}}, {"$elemMatch": {"$elemMatch": inner}}):
        number, text = failure(db, {"find": "c", "filter": {"a": condition}})
        assert number == 2 and text.startswith(f"unknown top level operator: {first}.")


@pytest.mark.parametrize("condition", [
    {"$alwaysFalse": 1}, {"x": {"$all": []}}, {"$or": [{"$alwaysFalse": 1}, {"x": {"$all": []}}]},
    {"$nor": [{"$alwaysTrue": 1}]}, {"x": {"$elemMatch": {"$all": []}}},
])
def test_a_condition_that_names_no_field_stays_behind_what_fails(db, condition):
    db.c.insert_one({"_id": 1, "a": [1]})
    to_int = {"$convert": {"input": "$a", "to": "int"}}
    for stage in ({"$addFields": {"z": to_int}}, {"$lookup": {"from": "c", "let": {"v": to_int}, "pipeline": [], "as": "z"}}):
        for match in (condition, {"$and": [condition, {"$alwaysFalse": 1}]}):
            assert code(db, {"aggregate": "c", "pipeline": [stage, {"$match": match}], "cursor": {}}) == 241
        moved = {"$and": [condition, {"b": 5}]}
        assert code(db, {"aggregate": "c", "pipeline": [stage, {"$match": moved}], "cursor": {}}) == 0


@pytest.mark.parametrize("text, hour", [
    ("b2020-01-01", 22), ("Z2020-01-01", 0), ("utc 2020-01-01", 0), ("(b) 2020-01-01T05:00", 3), ("b20200101", 22),
    ("b1 January 2020", 22), ("2020-01-01 b", 22), ("b2020-01-01 UTC", None), ("t2020-01-01", None), ("j2020-01-01", None),
    ("bJanuary 1 2020", None), ("b2020", None),
])
def test_the_zone_of_a_date_may_come_first(db, text, hour):
    db.c.insert_one({})
    command = {"aggregate": "c", "pipeline": [{"$project": {"d": {"$hour": {"$toDate": text}}}}], "cursor": {}}
    if hour is None:
        assert code(db, command) == 241
    else:
        assert db.command(command)["cursor"]["firstBatch"][0]["d"] == hour


@pytest.mark.parametrize("how, told", [
    ({"method": "x", "value": 1}, 6050201), ({"value": 1, "method": "x"}, 6050201), ({"method": "x", "bogus": 1}, 40415),
    ({"method": "x"}, 6050202), ({"method": 1, "bogus": 1}, 14), ({"bogus": 1, "method": 1}, 40415),
])
def test_the_name_of_a_method_of_fill_is_looked_at_last(db, how, told):
    stage = {"$fill": {"sortBy": {"a": 1}, "output": {"a": how}}}
    assert code(db, {"aggregate": "c", "pipeline": [stage], "cursor": {}}) == told


OF_INTEGRAL = "The input value of $integral window function must be a vector of 2 value"
OF_ADDITION = "$add only supports numeric or date types, not string"


@pytest.mark.parametrize("function, documents, told", [
    ("$integral", [(0, 1), (1, None), (2, "x")], OF_INTEGRAL),
    ("$integral", [(0, 1), (1, "x"), (2, None)], OF_ADDITION),
    ("$integral", [("x", "x")], OF_ADDITION),
    ("$derivative", [(0, None), (1, 1), (2, "x")], "$derivative input must not be null or missing"),
    ("$derivative", [(0, 1), (1, "x"), (2, None)], OF_ADDITION),
    ("$derivative", [("x", "x"), ("y", "x")], "$derivative (with no 'unit') expects the sortBy field to be numeric"),
])
def test_a_window_tells_of_the_first_document_that_it_cannot_take(db, function, documents, told):
    db.c.insert_many([{"s": time, "a": value} for time, value in documents])
    output = {"w": {function: {"input": {"$add": ["$a", 1]}}, "window": {"documents": [-1, 0]}}}
    pipeline = [{"$setWindowFields": {"sortBy": {"s": 1}, "output": output}}]
    assert told in failure(db, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})[1]


@pytest.mark.parametrize("function", ["$integral", "$push", "$minN", "$sum", "$covariancePop"])
def test_a_document_that_a_window_skips_is_computed(db, function):
    db.c.insert_many([{"s": 0, "a": 1}, {"s": 5, "a": 1}, {"s": 8, "a": "x"}, {"s": 10, "a": 1}])
    input = {"$add": ["$a", 1]}
    argument = {"$integral": {"input": input}, "$minN": {"input": input, "n": 2}, "$covariancePop": [input, input]}
    output = {"w": {function: argument.get(function, input), "window": {"range": [5, 6]}}}
    pipeline = [{"$setWindowFields": {"sortBy": {"s": 1}, "output": output}}]
    assert code(db, {"aggregate": "c", "pipeline": pipeline, "cursor": {}}) == 14


FAILS = {"$expr": {"$tsSecond": {"a": "$a"}}}
HOLDS = {"$expr": {"$lte": ["$a", "$$v"]}}


@pytest.mark.parametrize("branches", [[FAILS, HOLDS], [HOLDS, FAILS]], ids=["fails first", "holds first"])
@pytest.mark.parametrize("write", [
    {"delete": "c", "deletes": [{"limit": 0}]}, {"delete": "c", "deletes": [{"limit": 1}]},
    {"update": "c", "updates": [{"u": {"$set": {"x": 1}}, "multi": True}]},
    {"update": "c", "updates": [{"u": {"$set": {"x": 1}}}]}, {"findAndModify": "c", "remove": True},
], ids=str)
def test_a_write_evaluates_a_comparison_before_another_expression(db, branches, write):
    db.c.insert_one({"_id": 1})
    query = {"$or": branches}
    statements = {"deletes": "q", "updates": "q"}
    command = {name: [{statements[name]: query, **value[0]}] if name in statements else value for name, value in write.items()}
    if "findAndModify" in write:
        command["query"] = query
    assert failure(db, {**command, "let": {"v": 5}})[0] == 0


@pytest.mark.parametrize("unique, on, other, is_on", [
    ([], None, {"_id": 1}, True), (["b"], None, {"_id": 2, "b": 1}, False), (["b"], "b", {"_id": 2, "b": 1}, True),
    (["b"], "b", {"_id": 1, "b": 2}, False), ([[("b", 1), ("a", -1)]], ["a", "b"], {"_id": 2, "a": 1, "b": 1}, True),
    ([[("b", 1), ("a", -1)], "b"], ["a", "b"], {"_id": 2, "a": 2, "b": 1}, False),
])
def test_a_merge_tells_whether_the_document_is_one_with_its_fields(db, unique, on, other, is_on):
    for keys in unique:
        db.target.create_index(keys, unique=True)
    db.target.insert_one(other)
    db.c.insert_one({"_id": 1, "a": 1, "b": 1})
    stage = {"into": "target", "whenMatched": "fail", **({"on": on} if on else {})}
    found = "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields"
    told = failure(db, {"aggregate": "c", "pipeline": [{"$merge": stage}], "cursor": {}})
    assert told[0] == 11000
    assert (found if is_on else "$merge failed due to a DuplicateKey error") in told[1]


@pytest.mark.parametrize("query", [{"$nor": [{}]}, {"_id": 1, "$nor": [{}, {"x": 1}]}, {"$alwaysFalse": 1}, {"a": {"$in": []}}], ids=str)
@pytest.mark.parametrize("rest", [[], [{"$addFields": {"x": 1}}], [{"$limit": 1}]], ids=str)
def test_a_search_by_distance_that_cannot_find_anything_finds_nothing(db, query, rest):
    db.c.insert_one({"_id": 1, "p": [0, 0]})
    db.c.create_index([("p", "2dsphere")])
    search = {"near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": "d", "query": query}
    assert list(db.c.aggregate([{"$geoNear": search}, *rest])) == []


@pytest.mark.parametrize("vars, told", [
    ([], 0), ({}, 0), ([1], "'0' starts with an invalid character for a user variable name"), (None, "expected an object (vars)"),
])
def test_variables_in_an_array_have_numbers_for_names(db, vars, told):
    pipeline = [{"$project": {"x": {"$let": {"vars": vars, "in": 1}}}}]
    code, text = failure(db, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    assert code == 0 if told == 0 else told in text


@pytest.mark.parametrize("target", ["b", "a", "a.$[e]", 5, "b.$[f]"])
def test_a_filter_that_the_old_name_needs_comes_before_the_new_name(db, target):
    db.c.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as refused:
        db.c.update_one({}, {"$rename": {"a.$[e]": target}})
    assert "No array filter found for identifier 'e' in path 'a.$[e]'" in str(refused.value)


@pytest.mark.parametrize("source, target, told", [
    ("system.views", "system.x", "error with source namespace: cannot write to {db}.system.views"),
    ("system.views", "system.views", "Can't rename a collection to itself"),
    ("system.x", "system.x", "Can't rename a collection to itself"),
    ("x", "system.x", "error with target namespace: Invalid system namespace: {db}.system.x"),
])
def test_the_source_of_a_rename_is_checked_before_its_target(db, source, target, told):
    names = [f"{db.name}.{name}" for name in (source, target)]
    with pytest.raises(OperationFailure) as refused:
        db.client.admin.command("renameCollection", names[0], to=names[1])
    assert (refused.value.code, refused.value.details["errmsg"]) == (20, told.format(db=db.name))


@pytest.mark.parametrize("remove", [False, True])
def test_a_record_id_is_null_in_find_and_modify(db, remove):
    db.c.insert_one({"_id": 1, "a": 1})
    change = {"remove": True} if remove else {"update": {"$set": {"b": 1}}}
    reply = db.command("findAndModify", "c", query={}, fields={"x": {"$meta": "recordId"}}, **change)
    assert reply["value"] == {"_id": 1, "a": 1, "x": None}
