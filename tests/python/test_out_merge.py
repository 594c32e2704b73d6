"""Pipelines that write: `$out` takes a collection's place at once, `$merge` goes document by document."""
import pymongo
import pytest
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError


@pytest.fixture
def source(c):
    c.insert_many([{"_id": 1, "k": 1, "v": "a"}, {"_id": 2, "k": 2, "v": "b"}, {"_id": 3, "k": 3, "v": "c"}])
    return c


def target_of(c):
    target = c.database[c.name + "_target"]
    target.insert_many([{"_id": 1, "k": 10, "w": 1}, {"_id": 9, "k": 90, "w": 9}])
    return target


def rows(collection):
    return list(collection.find().sort("_id", 1))


def test_out_replaces_a_collection_and_keeps_its_indexes(source):
    target = target_of(source)
    target.create_index([("k", 1), ("v", 1)], unique=True)
    assert list(source.aggregate([{"$out": target.name}])) == []
    assert rows(target) == rows(source)
    assert set(target.index_information()) == {"_id_", "k_1_v_1"}


@pytest.mark.parametrize("variables", [None, {}, {"n": 1}, {"n": 1, "new": "$$ROOT"}])
@pytest.mark.parametrize("otherwise", ["insert", "discard", "fail"])
def test_new_is_a_variable_unless_others_replace_it(source, variables, otherwise):
    target = target_of(source)
    merge = {"into": target.name, "whenMatched": [{"$set": {"v": "$$new.v"}}], "whenNotMatched": otherwise}
    stages = [{"$match": {"_id": 1}}, {"$merge": merge if variables is None else {**merge, "let": variables}}]
    if variables is None or "new" in variables or otherwise == "insert":
        source.aggregate(stages)
        assert rows(target)[0] == {"_id": 1, "k": 10, "w": 1, "v": "a"}
    else:
        with pytest.raises(OperationFailure, match="Use of undefined variable: new"):
            source.aggregate(stages)


def test_a_failed_out_leaves_the_collection_and_nothing_else(source):
    target = target_of(source)
    target.create_index("k", unique=True)
    before = rows(target)
    with pytest.raises(DuplicateKeyError) as failed:
        source.aggregate([{"$set": {"k": 1}}, {"$out": target.name}])
    assert "PlanExecutor error during aggregation :: caused by :: E11000" in str(failed.value)
    assert rows(target) == before
    assert not [n for n in source.database.list_collection_names() if n.startswith("tmp.agg_out")]


def test_out_writes_when_its_cursor_is_pulled_and_not_before(source):
    name = source.name + "_target"
    reply = source.database.command("aggregate", source.name, pipeline=[{"$out": name}], cursor={"batchSize": 0})
    assert name not in source.database.list_collection_names()
    source.database.command("getMore", reply["cursor"]["id"], collection=source.name)
    assert rows(source.database[name]) == rows(source)


@pytest.mark.parametrize("how, first", [
    ({}, {"_id": 1, "k": 1, "w": 1, "v": "a"}),
    ({"whenMatched": "replace"}, {"_id": 1, "k": 1, "v": "a"}),
    ({"whenMatched": "keepExisting"}, {"_id": 1, "k": 10, "w": 1}),
    ({"whenMatched": [{"$set": {"z": "$$new.v"}}]}, {"_id": 1, "k": 10, "w": 1, "z": "a"}),
    ({"let": {"q": "$v"}, "whenMatched": [{"$set": {"z": "$$q"}}]}, {"_id": 1, "k": 10, "w": 1, "z": "a"}),
])
def test_merge_changes_what_matches_and_inserts_the_rest(source, how, first):
    target = target_of(source)
    source.aggregate([{"$merge": {"into": target.name, **how}}])
    assert rows(target)[0] == first
    assert [d["_id"] for d in rows(target)] == [1, 2, 3, 9]


def test_an_error_of_one_document_does_not_stop_the_others_of_a_batch(source):
    target = target_of(source)
    with pytest.raises(DuplicateKeyError):
        source.aggregate([{"$merge": {"into": target.name, "whenMatched": "fail"}}])
    assert [d["_id"] for d in rows(target)] == [1, 2, 3, 9]


@pytest.mark.parametrize("stages, how, code", [
    ([{"$project": {"_id": {"$cond": [{"$eq": ["$_id", 2]}, None, "$_id"]}}}], {}, 51132),
    ([{"$project": {"_id": {"$cond": [{"$eq": ["$_id", 2]}, [1], "$_id"]}}}], {}, 51185),
    ([{"$set": {"n": {"$cond": [{"$eq": ["$_id", 2]}, "x", 1]}}}],
     {"let": {"m": {"$add": ["$n", 1]}}, "whenMatched": [{"$set": {"n": "$$m"}}]}, 14),
])
def test_a_document_that_cannot_be_merged_keeps_its_batch_from_being_written(source, stages, how, code):
    target = target_of(source)
    before = rows(target)
    with pytest.raises(OperationFailure) as failed:
        source.aggregate([*stages, {"$merge": {"into": target.name, **how}}])
    assert failed.value.code == code
    assert rows(target) == before


@pytest.mark.parametrize("how, code", [
    ({"whenNotMatched": "fail"}, 13113),
    ({"on": "k"}, 51183),
    ({"whenMatched": [{"$set": {"_id": 77}}]}, 66),
    ({"into": {"db": "admin", "coll": "x"}}, 31320),
])
def test_what_merge_refuses(source, how, code):
    target = target_of(source)
    with pytest.raises(OperationFailure) as failed:
        source.aggregate([{"$merge": {"into": target.name, **how}}])
    assert failed.value.code == code


def test_a_validator_holds_for_both_unless_it_is_bypassed(source):
    db, name = source.database, source.name + "_target"
    db.create_collection(name, validator={"k": {"$gt": 2}})
    for stage in ({"$out": name}, {"$merge": name}):
        with pytest.raises((WriteError, OperationFailure)) as failed:
            source.aggregate([{"$match": {"k": 1}}, stage])
        assert failed.value.code == 121
        source.aggregate([stage], bypassDocumentValidation=True)
        assert db[name].count_documents({}) == 3
        db[name].delete_many({})


def merged(source, document, before=None, **how):
    """The target after a `$merge` of one document, with another document before, or none."""
    target = source.database[source.name + "_one"]
    target.drop()
    if before:
        target.insert_one(before)
    source.delete_many({})
    source.insert_one(document)
    source.aggregate([{"$merge": {"into": target.name, **how}}])
    return list(target.find())


def test_merge_sets_the_fields_by_their_paths(source):
    # As `$set` does: new fields come in the order of their names, and a name with a dot is a path.
    document = {"_id": 1, "d": 1, "b": 2, "a.b": 3}
    assert [list(row) for row in merged(source, document)] == [["_id", "a", "b", "d"]]
    assert merged(source, document) == [{"_id": 1, "a": {"b": 3}, "b": 2, "d": 1}]
    assert merged(source, document, {"_id": 1, "a": {"c": 4}, "d": 0}) == [
        {"_id": 1, "a": {"c": 4, "b": 3}, "d": 1, "b": 2}]


@pytest.mark.parametrize("document, code", [
    ({"_id": 1, "": 1}, 56),
    ({"_id": 1, "a.": 1}, 56),
    ({"_id": 1, "a.b": 1, "a": 2}, 40),
    ({"_id": 1, "a.$": 1}, 2),
])
@pytest.mark.parametrize("how", ["merge", "keepExisting"])
def test_merge_refuses_what_set_refuses(source, document, code, how):
    with pytest.raises(OperationFailure) as failed:
        merged(source, document, whenMatched=how)
    assert failed.value.code == code
    assert merged(source, document, whenMatched="replace") == [document]


def test_a_target_with_a_collation_needs_no_index_unless_on_is_given(source):
    target = source.database.create_collection(source.name + "_collated", collation={"locale": "en"})
    source.aggregate([{"$merge": target.name}])
    assert rows(target) == rows(source)
    with pytest.raises(OperationFailure) as failed:
        source.aggregate([{"$merge": {"into": target.name, "on": "_id"}}])
    assert failed.value.code == 51183


def test_a_new_document_is_inserted_as_it_is_by_other_modes(source):
    target = source.database[source.name + "_ordered"]
    target.create_index("k", unique=True)
    for how in ["replace", [{"$set": {"x": 1}}]]:
        target.delete_many({})
        source.aggregate([{"$merge": {"into": target.name, "on": "k", "whenMatched": how}}])
        assert [list(row) for row in target.find()] == [["_id", "k", "v"]] * 3
        target.delete_many({})
        source.aggregate([{"$project": {"_id": 0, "w": "$v", "k": 1}},
                          {"$merge": {"into": target.name, "on": "k", "whenMatched": how}}])
        assert [list(row) for row in target.find()] == [["_id", "k", "w"]] * 3


def test_a_router_supplies_the_document_of_an_upsert(source):
    def update(**fields):
        statement = {"q": {"_id": 50}, "u": [{"$set": {"a": 1}}], "upsert": True, "upsertSupplied": True, **fields}
        return source.database.command("update", source.name, updates=[statement])

    assert update(c={"new": {"b": 1, "_id": 50}})["upserted"] == [{"index": 0, "_id": 50}]
    assert list(source.find_one({"_id": 50}).items()) == [("_id", 50), ("b", 1)]
    assert update(c={"new": {"b": 2}})["nModified"] == 1
    assert source.find_one({"_id": 50}) == {"_id": 50, "b": 1, "a": 1}
    for wrong in [{}, {"c": {}}, {"c": {"new": 1}}, {"u": {"$set": {"a": 1}}}, {"u": {"x": 1}, "multi": True}]:
        assert update(**wrong)["writeErrors"][0]["code"] == 9, wrong


def test_a_clustered_target_has_no_index_for_on(source):
    key = {"key": {"_id": 1}, "unique": True}
    target = source.database.create_collection(source.name + "_clustered", clusteredIndex=key)
    source.aggregate([{"$merge": target.name}])
    assert rows(target) == rows(source)
    with pytest.raises(OperationFailure) as failed:
        source.aggregate([{"$merge": {"into": target.name, "on": "_id"}}])
    assert failed.value.code == 51183


@pytest.mark.parametrize("unmatched, is_created", [("insert", True), ("discard", False)])
def test_merge_creates_its_collection_before_it_reads_the_update(db, unmatched, is_created):
    db.c.insert_one({"_id": 1})
    with pytest.raises(OperationFailure):
        db.c.aggregate([{"$merge": {"into": "m", "whenMatched": [{"$set": "$$new"}], "whenNotMatched": unmatched}}])
    assert ("m" in db.list_collection_names()) == is_created


def test_the_writes_of_a_pipeline_are_no_part_of_its_snapshot(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        client.drop_database("merged")
        client.merged.c.insert_many([{"_id": n} for n in range(3)])
        for stage in ({"$merge": {"into": "new"}}, {"$merge": {"into": "new"}}, {"$out": "other"}):
            client.merged.command("aggregate", "c", pipeline=[stage], cursor={}, readConcern={"level": "snapshot"})
        assert client.merged.new.count_documents({}) == client.merged.other.count_documents({}) == 3


def test_a_merge_into_a_database_without_a_name_is_into_its_own(source):
    name = source.name + "_target"
    source.aggregate([{"$merge": {"into": {"db": "", "coll": name}}}])
    assert rows(source.database[name]) == rows(source)
    with pytest.raises(OperationFailure, match="Cannot \\$merge to special collection: system.x") as refused:
        source.aggregate([{"$merge": {"into": {"db": "admin", "coll": "system.x"}}}])
    assert refused.value.code == 31319


def test_documents_without_a_match_are_reported_if_no_write_of_their_batch_fails(source):
    target = target_of(source)
    target.insert_one({"_id": 2})
    failing = {"$cond": [{"$eq": ["$_id", 2]}, "$nothing", {"_id": 1, "v": "new"}]}
    merge = {"$merge": {"into": target.name, "whenMatched": [{"$replaceWith": failing}], "whenNotMatched": "fail"}}
    with pytest.raises(OperationFailure) as failed:
        source.aggregate([{"$sort": {"_id": -1}}, merge])
    assert failed.value.code == 40228
    assert rows(target) == [{"_id": 1, "v": "new"}, {"_id": 2}, {"_id": 9, "k": 90, "w": 9}]


@pytest.mark.parametrize("document, code, field", [({"_id": None, "k": []}, 51132, "_id"), ({"_id": [], "w": 1}, 51185, "_id"),
                                                   ({"_id": 1}, 51132, "k")])
def test_of_the_fields_that_cannot_be_matched_the_first_by_name_is_reported(source, document, code, field):
    target = target_of(source)
    target.create_index([("k", 1), ("_id", 1)], unique=True)
    stages = [{"$limit": 1}, {"$replaceWith": {"$literal": document}}, {"$merge": {"into": target.name, "on": ["k", "_id"]}}]
    with pytest.raises(OperationFailure, match=f"'on' field '{field}'") as refused:
        source.aggregate(stages)
    assert refused.value.code == code


def test_a_value_that_is_missing_defines_no_variable(source):
    target = target_of(source)
    for value in ("$nothing", "$$REMOVE"):
        unused = {"into": target.name, "let": {"n": value}, "whenMatched": [{"$set": {"v": 1}}]}
        source.aggregate([{"$match": {"_id": 1}}, {"$merge": unused}])
        used = {**unused, "whenMatched": [{"$set": {"v": "$$n"}}]}
        with pytest.raises(OperationFailure, match="Invalid \\$set :: caused by :: Use of undefined variable: n"):
            source.aggregate([{"$match": {"_id": 1}}, {"$merge": used}])
    assert rows(target)[0] == {"_id": 1, "k": 10, "w": 1, "v": 1}
