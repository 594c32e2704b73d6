"""Pipelines that write: `$out` takes a collection's place at once, `$merge` goes document by document."""
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
