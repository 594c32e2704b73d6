"""Errors of index specifications are mongod's, and of several errors its first."""

import bson.raw_bson
import pytest
from bson.son import SON
from pymongo.errors import OperationFailure


def refuse(c, *specs, **options):
    command = {"createIndexes": c.name, "indexes": list(specs), **options}
    with pytest.raises(OperationFailure) as refused:
        c.database.command(command)
    return refused.value.code, refused.value.details["errmsg"]


def test_options_are_read_in_the_order_of_the_document(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, SON([("bits", "x"), ("key", {"a": 0}), ("name", "n")]))
    assert (code, "'bits' must be a number" in text) == (14, True)
    code, text = refuse(c, SON([("key", {"a": 0}), ("name", "n"), ("bits", "x")]))
    assert (code, "cannot be 0" in text) == (67, True)


def test_a_build_that_cannot_begin_names_the_first_index(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, {"key": {"a": "hashed"}, "name": "n", "unique": True})
    assert code == 16764
    assert "Caught exception during index builder ((None)) initialization on namespace" in text
    assert '1 index specs provided. First index spec: { v: 2, unique: true, key: { a: "hashed" }, name: "n" }' in text


def test_a_partial_filter_that_cannot_be_is_shown_as_a_tree(c):
    spec = {"key": {"a": 1}, "name": "n", "partialFilterExpression": {"a": {"$not": {"$gt": 1}}}}
    code, text = refuse(c, spec)
    assert code == 67
    assert text.endswith("Expression not supported in partial index: $not\n    $and\n        a $gt 1\n")


def test_an_id_index_has_its_collections_collation(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, {"key": {"_id": 1}, "name": "n", "collation": {"locale": "fr"}})
    assert code == 2
    assert text.startswith("The _id index must have the same collation as the collection.")
    c.create_index([("_id", 2)])


def mistake(db, command):
    with pytest.raises(OperationFailure) as refused:
        db.command(SON(command))
    return refused.value.code, refused.value.details["errmsg"]


@pytest.fixture
def kinds(db):
    db.plain.create_index("a")
    db.create_collection("capped", capped=True, size=10000)
    db.capped.create_index("a")
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=5)
    db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    db.series.create_index("a")
    db.create_collection("view", viewOn="plain", pipeline=[])
    return db


@pytest.mark.parametrize("name, change, code, text", [
    # Forms come before all else, in the order in which they are said.
    ("gone", {"index": {"hidden": "x"}, "validationLevel": "x"}, 14, "'collMod.index.hidden' is the wrong type"),
    ("gone", {"validationLevel": "x", "cappedSize": -1}, 2, "'x' for field 'collMod.validationLevel'"),
    ("plain", {"cappedMax": 2**31}, 51024, "'cappedMax' value must be < 2147483648"),
    ("plain", {"cappedSize": 2**60}, 51024, "'cappedSize' value must be <= 1125899906842624"),
    ("plain", {"timeseries": {"granularity": "x"}}, 2, "'collMod.timeseries.granularity' is not a valid value"),
    ("plain", {"expireAfterSeconds": None}, 14, "wrong type 'null', expected types '[string, long']"),
    ("plain", {"changeStreamPreAndPostImages": {}}, 40414, "'collMod.changeStreamPreAndPostImages.enabled' is missing"),
    ("gone", {"index": {"name": "a_1", "unique": True}}, 26, "ns does not exist for unique index conversion"),
    # The index comes before what is said of the collection.
    ("plain", {"index": {"name": "x", "hidden": True}, "viewOn": "x"}, 27, "cannot find index x"),
    ("plain", {"index": {"name": "x", "hidden": True}, "expireAfterSeconds": 5}, 27, "cannot find index x"),
    ("plain", {"index": {"name": "", "hidden": True}}, 27, "cannot find index {} for ns"),
    ("plain", {"validator": {"$bad": 1}, "expireAfterSeconds": -1}, 2, "Parsing of collection validator failed"),
    ("plain", {"expireAfterSeconds": -1}, 72, "only supported on collections clustered by _id"),
    ("capped", {"index": {"name": "x", "expireAfterSeconds": -1}}, 72, "not supported for capped collections."),
    ("clustered", {"index": {"keyPattern": {"_id": 1}, "hidden": True}}, 6011800, "'hidden' option is not supported"),
    ("view", {"index": {"name": "x", "unique": True}}, 166, "is a view, not a collection"),
    ("view", {"expireAfterSeconds": 5}, 72, "option not supported on a view: expireAfterSeconds"),
    ("view", {"timeseries": {"granularity": "hours"}}, 72, "option only supported on a time-series collection"),
    ("series", {"index": {"expireAfterSeconds": 5}}, 72, "Must specify either index name or key pattern."),
    ("series", {"index": {"name": "x", "prepareUnique": True}}, 27, "cannot find index x"),
    ("series", {"index": {"keyPattern": {}, "hidden": True}}, 27, "Empty object is not a valid index spec Command request"),
    # A field is checked as it is read: its form comes before the type of the next one.
    ("gone", {"validationLevel": "x", "validationAction": 1}, 2, "'x' for field 'collMod.validationLevel'"),
    ("plain", {"cappedSize": 0, "pipeline": {}}, 51024, "'cappedSize' value must be >= 1"),
    ("plain", {"index": {"name": "a_1", "sparse": True}, "nothing": 1}, 40415, "'collMod.index.sparse' is an unknown"),
    ("gone", {"viewOn": "", "validator": 1}, 2, "'viewOn' cannot be empty"),
    ("series", {"validator": {}, "pipeline": [1]}, 14, "'collMod.pipeline.0' is the wrong type 'int', expected type 'object'"),
    ("gone", {"changeStreamPreAndPostImages": {"enabled": 1}}, 14, "enabled' is the wrong type 'int', expected type 'bool'"),
    ("gone", {"recordPreImages": True, "changeStreamPreAndPostImages": {"enabled": True}}, 72, "set to true simultaneously"),
    ("view", {"expireAfterSeconds": 5, "recordPreImages": False}, 72, "not supported on a view: recordPreImages"),
    ("view", {"viewOn": "a$b"}, 73, "invalid name for 'viewOn': a$b"),
    ("series", {"recordPreImages": True, "viewOn": "x"}, 72, "option only supported on a view: viewOn"),
])
def test_which_mistake_of_a_coll_mod_is_told(kinds, name, change, code, text):
    found = mistake(kinds, {"collMod": name, **change})
    assert found[0] == code and text in found[1], found


@pytest.mark.parametrize("name, index, code, text", [
    ("gone", ["_id_"], 26, "ns not found"),
    ("plain", ["x", "_id_"], 27, "index not found with name [x]"),
    ("plain", ["a_1", "_id_"], 72, "cannot drop _id index"),
    ("series", ["a_1", "_id_"], 5979800, "It is illegal to drop the clusteredIndex"),
    ("series", {"a": "x"}, 27, 'a: "x" Command request: { dropIndexes: "series", index: { a: "x" } }'),
    ("series", {"t": "x"}, 27, "Indexes on the time field must be ascending or descending (numbers only)"),
    ("gone", ["x", 1], 14, "'dropIndexes.index.1' is the wrong type 'int', expected type 'string'"),
    ("gone", [1, "x"], 14, "'dropIndexes.index' is the wrong type 'array', expected types '[string']"),
    ("gone", None, 14, "'dropIndexes.index' is the wrong type 'null', expected types '[string, object']"),
])
def test_which_mistake_of_a_drop_is_told(kinds, name, index, code, text):
    found = mistake(kinds, {"dropIndexes": name, "index": index})
    assert found[0] == code and text in found[1], found


def test_the_index_is_read_before_a_field_that_is_unknown(kinds):
    assert mistake(kinds, {"dropIndexes": "plain", "index": 2, "nothing": 1})[0] == 14
    assert mistake(kinds, {"dropIndexes": "plain", "nothing": 1, "index": 2})[0] == 40415


def test_null_in_a_list_of_names_is_none(kinds):
    assert kinds.command("dropIndexes", "plain", index=["a_1", None])["nIndexesWas"] == 2
    assert list(kinds.plain.index_information()) == ["_id_"]


def test_of_several_indexes_with_one_key_two_are_shown(kinds):
    kinds.plain.create_index("a", name="second", sparse=True)
    kinds.plain.create_index("a", name="third", partialFilterExpression={"b": 1})
    code, text = mistake(kinds, {"dropIndexes": "plain", "index": {"a": 1}})
    assert code == 181 and text.startswith("3 indexes found for key: { a: 1 }")
    assert '"second"' in text and '"third"' not in text


IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


@pytest.mark.parametrize("name, changes, noted", [
    ("plain", [{"validationLevel": "moderate"}], {"validationLevel": "moderate", "validationAction": "error"}),
    ("plain", [{"validationAction": "warn"}], {"validationLevel": "strict", "validationAction": "warn"}),
    ("plain", [{"validator": {}}], {"validationLevel": "strict", "validationAction": "error"}),
    ("plain", [{"validationLevel": "off"}, {"validator": {"a": 1}}],
     {"validator": {"a": 1}, "validationLevel": "off", "validationAction": "error"}),
    ("plain", [IMAGES], IMAGES),
    ("plain", [{"recordPreImages": 1}], {"recordPreImages": True}),
    ("plain", [{"recordPreImages": True}, IMAGES], IMAGES),
    ("plain", [IMAGES, {"recordPreImages": True}], {"recordPreImages": True}),
    ("plain", [IMAGES, {"changeStreamPreAndPostImages": {"enabled": False}}], {}),
    ("capped", [{"cappedMax": 0}], {"capped": True, "size": 10240, "max": 2147483647}),
])
def test_what_is_noted_of_a_coll_mod(kinds, name, changes, noted):
    for change in changes:
        kinds.command({"collMod": name, **change})
    [found] = kinds.list_collections(filter={"name": name})
    assert found["options"] == noted


def test_a_star_in_front_of_a_list_drops_all(kinds):
    dropped = kinds.command("dropIndexes", "plain", index=["*", "nothing"], isTimeseriesNamespace=False)
    assert dropped["msg"] == "non-_id indexes dropped for collection"
    assert list(kinds.plain.index_information()) == ["_id_"]


def test_a_clustered_index_shows_when_its_documents_expire(kinds):
    [shown] = kinds.clustered.list_indexes()
    assert shown["expireAfterSeconds"] == 5 and list(shown)[-1] == "clustered"


def test_a_view_is_changed(kinds):
    kinds.plain.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
    kinds.command("collMod", "view", viewOn="plain", pipeline=[{"$match": {"a": 2}}])
    assert [d["_id"] for d in kinds.view.find()] == [2]
    kinds.command("collMod", "view", pipeline=[])
    assert kinds.view.count_documents({}) == 2


@pytest.mark.parametrize("projection, code", [
    ({"a": {"$slice": 1}}, 51271), ({"a": {"$meta": "textScore"}}, 51271), ({"a": {"b": "$"}}, 51271),
    ({"a": 1, "$b": "x"}, 51271), ({"a": {"$elemMatch": {"x": 1}}}, 168), ({"a": {"$bad": 1}}, 31325),
    ({"$a": {"$slice": 1}}, 16410), ({"a": 1, "b": 0, "c": "x"}, 31254), ({"a": {}}, 51270),
])
def test_a_wildcard_projection_computes_nothing(c, projection, code):
    assert refuse(c, {"key": {"$**": 1}, "name": "n", "wildcardProjection": SON(projection)})[0] == code


def test_of_a_text_index_the_language_comes_before_the_version(c):
    text = {"key": {"a": "text"}, "name": "n", "textIndexVersion": 4}
    assert refuse(c, {**text, "default_language": "klingon"})[1].endswith("default_language is not valid")
    assert refuse(c, text)[1].endswith("bad textIndexVersion: 4")
    assert refuse(c, {**text, "textIndexVersion": 2, "weights": {"$a": 1}})[1].endswith("with $ prefix")


@pytest.mark.parametrize("second", [1, -1, 0, "text", "hashed", True])
def test_a_field_is_in_an_index_once(c, second):
    c.insert_one({"a": 1})
    fields = b"".join(bson.encode({"v": value})[4:-1] for value in (1, second))
    key = bson.raw_bson.RawBSONDocument((len(fields) + 5).to_bytes(4, "little") + fields + b"\0")
    code, text = refuse(c, {"key": key, "name": "n"})
    assert (code, "The field 'v' appears multiple times in the index key pattern" in text) == (2, True)


def insert(c, document):
    with pytest.raises(OperationFailure) as refused:
        c.insert_one(document)
    return refused.value.code, refused.value.details["errmsg"]


@pytest.mark.parametrize("keys, document, names", [
    (["a", "b"], {"a": [], "b": [1]}, "[b] [a]"),
    (["x", "d.c"], {"d": [], "x": [{}]}, "[d] [x]"),
    (["p.q.r", "s.t"], {"p": {"q": []}, "s": {"t": []}}, "[t] [q]"),
    (["p.q.r", "p.s.t"], {"p": [{"q": [1], "s": [2]}]}, "[s] [q]"),
    (["p.0.r", "s.t"], {"p": [{"r": [1]}], "s": {"t": [2]}}, "[t] [p]"),
])
def test_parallel_arrays_are_told_by_the_fields_that_hold_them(c, keys, document, names):
    c.create_index([(key, 1) for key in keys])
    assert insert(c, document) == (171, "cannot index parallel arrays " + names)


def test_a_key_that_an_earlier_index_has_is_told_before_what_a_later_one_refuses(c):
    c.create_index([("u", 1)], unique=True)
    c.create_index([("a", 1), ("b", 1)])
    c.create_index([("h", "hashed")])
    c.insert_many([{"_id": 1, "u": 1}, {"_id": 2, "u": 2}])
    assert insert(c, {"_id": 1, "a": [], "b": []})[0] == 11000
    assert insert(c, {"_id": 3, "u": 1, "h": []})[0] == 11000
    assert insert(c, {"_id": 3, "u": 3, "h": []})[0] == 16766
    for update, code in (({"u": 1, "h": []}, 11000), ({"u": 2, "h": []}, 16766), ({"u": 3, "a": [], "b": []}, 171)):
        with pytest.raises(OperationFailure) as refused:
            c.update_one({"_id": 2}, {"$set": update})
        assert refused.value.code == code, update
    with pytest.raises(OperationFailure) as refused:
        c.update_one({"_id": 1, "x": 1}, {"$set": {"u": 5, "h": []}}, upsert=True)
    assert refused.value.code == 11000


def test_a_clustered_collection_tells_its_key_first(c):
    c.database.create_collection(c.name, clusteredIndex={"key": {"_id": 1}, "unique": True})
    c.create_index([("a", 1), ("b", 1)])
    c.insert_one({"_id": 1})
    assert insert(c, {"_id": 1, "a": [], "b": []})[0] == 11000
    assert insert(c, {"_id": 2, "a": [], "b": []})[0] == 171


def test_a_key_pattern_has_two_kilobytes(c):
    # Its length, its end, and of the field: type, end of the name, and an int.
    longest = 2048 - 4 - 1 - 1 - 1 - 4
    c.create_index("x" * longest, name="fits")
    with pytest.raises(OperationFailure) as caught:
        c.create_index("y" * (longest + 1), name="too long")
    assert caught.value.code == 67
    assert caught.value.details["errmsg"].endswith("Index key pattern too large.")


def test_the_index_of_the_id_takes_no_further_options(c):
    c.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as failed:
        c.database.command("createIndexes", "c", indexes=[{"key": {"_id": 1}, "name": "_id_", "background": True}])
    assert failed.value.code == 197
    assert "The field 'background' is not valid for an _id index" in failed.value.details["errmsg"]


def test_an_index_of_the_first_version_has_no_collation(db):
    """It can be made in a collection that has one, and then compares bytes."""
    db.create_collection("c", collation={"locale": "de", "strength": 1})
    made = db.command("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "a", "v": 1}])
    assert made["numIndexesAfter"] == 2
    spec, = [each for each in db.c.list_indexes() if each["name"] == "a"]
    assert spec["v"] == 1 and "collation" not in spec
    for collation in ({"locale": "simple"}, {"locale": "fr"}):
        with pytest.raises(OperationFailure) as failed:
            db.command("createIndexes", "c", indexes=[{"key": {"b": 1}, "name": "b", "v": 1, "collation": collation}])
        assert failed.value.code == 67


@pytest.mark.parametrize("key, options, code", [
    ([("b", "text")], {"name": "n"}, 86),
    ([("c", 1)], {"name": "t"}, 86),
    ([("a", "text")], {"name": "n"}, 86),
    ([("c", 1), ("a", "text")], {"name": "t"}, 86),
    ([("b", "text")], {"name": "t"}, 85),
    ([("a", "text")], {"name": "other"}, 85),
    ([("c", 1)], {"name": "other"}, 85),
    ([("c", 1), ("a", "text")], {"name": "other"}, 67),
])
def test_an_index_of_the_same_name_is_looked_at_first(db, key, options, code):
    db.c.create_index("c", name="n")
    db.c.create_index([("a", "text")], name="t")
    with pytest.raises(OperationFailure) as failure:
        db.c.create_index(key, **options)
    assert failure.value.code == code


def test_unknown_options_are_not_ignored_on_measurements(db):
    db.create_collection("series", timeseries={"timeField": "t"})
    spec = SON([("key", {"a": 1}), ("name", "n"), ("foo", 1)])
    code, text = refuse(db.series, spec, ignoreUnknownIndexOptions=True)
    assert code == 197
    assert "The field 'foo' is not valid for an index specification" in text
    db.command("createIndexes", "plain", indexes=[spec], ignoreUnknownIndexOptions=True)


@pytest.mark.parametrize("version", [2, 2.0])
def test_a_version_of_a_geo_index_on_measurements_is_shown_as_it_was_given(db, version):
    db.create_collection("series", timeseries={"timeField": "t"})
    code, text = refuse(db.series, {"key": {"g": "2dsphere"}, "name": "n", "2dsphereIndexVersion": version})
    assert code == 67
    assert "2dsphereIndexVersion : 2dsphereIndexVersion: %s }, only versions: [3] are supported" % version in text


def test_two_ways_to_list_builds_exclude_each_other(db):
    code, text = mistake(db, {"listIndexes": "c", "includeBuildUUIDs": True, "includeIndexBuildInfo": True})
    assert code == 72
    assert text == "The includeBuildUUIDs flag and includeBuildIndexInfo flag cannot both be set to true"


@pytest.mark.parametrize("filter, other, is_same", [
    ({"b": 1}, {"b": {"$eq": 1.0}}, True), ({"b": 1}, {"b": {"$in": [1]}}, True),
    ({"a": 1, "b": 1}, {"$and": [{"b": 1}, {"a": 1}]}, True),
    ({"b": {"$gt": 1, "$lt": 3}}, {"$and": [{"b": {"$lt": 3}}, {"b": {"$gt": 1}}]}, True),
    ({"b": {"$type": 2}}, {"b": {"$type": ["string"]}}, True), ({"b": {"$exists": True}}, {"b": {"$exists": 1}}, True),
    ({"b": {"$in": [1, 2]}}, {"b": {"$in": [2, 1]}}, True),
    ({"$or": [{"a": 1}, {"b": 1}]}, {"$or": [{"b": 1}, {"a": 1}]}, True),
    ({"b": 1}, {"b": 2}, False), ({"b": {"x": 1, "y": 1}}, {"b": {"y": 1, "x": 1}}, False),
    ({"b": None}, {"b": {"$gte": None}}, False), ({}, {"b": 1}, False),
])
def test_partial_filters_are_compared_as_conditions(db, c, filter, other, is_same):
    """Not as they are written: an index of the same conditions is there already."""
    def create(name, filter):
        return db.command("createIndexes", "c", indexes=[{"key": {"k": 1}, "name": name, "partialFilterExpression": filter}])

    create("n", filter)
    if is_same:
        assert create("n", other)["note"] == "all indexes already exist"
        with pytest.raises(OperationFailure) as refused:
            create("m", other)
        assert (refused.value.code, refused.value.details["errmsg"]) == (85, "Index already exists with a different name: n")
    else:
        with pytest.raises(OperationFailure) as refused:
            create("n", other)
        assert refused.value.code == 86
        assert create("m", other)["numIndexesAfter"] == 3


@pytest.mark.parametrize("kind, existing, requested, code", [
    # A number of a 2d index that is left out is not equal to its default.
    ("2d", {"bits": 26}, {}, 85), ("2d", {}, {"bits": 26}, 85), ("2d", {"min": -180}, {}, 85), ("2d", {}, {"max": 180.0}, 85),
    ("2d", {"min": -180, "max": 180}, {"max": 180}, 85), ("2d", {"min": -180, "max": 180}, {"max": 180.0, "min": -180.0}, None),
    ("2d", {"bits": 10}, {"bits": 10.0}, None), ("2d", {"min": 0}, {"min": -0.0}, None),
    # The versions are not compared.
    ("text", {"textIndexVersion": 2}, {}, None), ("text", {}, {"textIndexVersion": 1}, None),
    ("text", {"default_language": "french", "textIndexVersion": 2}, {}, 85), ("text", {"weights": {"g": 2}}, {}, 85),
    ("2dsphere", {"2dsphereIndexVersion": 1}, {}, None), ("2dsphere", {}, {"2dsphereIndexVersion": 2}, None),
])
def test_the_options_of_an_index_that_is_created_again(db, kind, existing, requested, code):
    def spec(name, options):
        return {"key": {"g": kind}, "name": name, **options}

    def create(name, options):
        return db.command("createIndexes", "c", indexes=[spec(name, options)])

    create("i", existing)
    if code is None:
        assert create("i", requested)["note"] == "all indexes already exist"
        assert refuse(db.c, spec("j", requested)) == (85, "Index already exists with a different name: i")
        return
    assert refuse(db.c, spec("i", requested))[0] == code
    refused, text = refuse(db.c, spec("j", requested))
    assert refused == code and "equivalent index already exists with a different name and options" in text
