"""A command that is refused is refused in the same way when it is explained.

Every row holds on mongod 6.0, too.
"""
import pytest
from bson import Binary, Int64, SON
from bson.binary import UUID_SUBTYPE

from test_order_of_mistakes import failure

TEXT = {"$text": {"$search": "x"}}


def command(name, collection="c", **fields):
    return SON([(name, collection)] + list(fields.items()))


def update(collection="c", q=None, **fields):
    return command("update", collection, updates=[SON([("q", q or {}), *fields.items()])])


def delete(collection="c", q=None, **fields):
    return command("delete", collection, deletes=[SON([("q", q or {}), *fields.items()])])


def aggregate(*stages, collection="c", **fields):
    return command("aggregate", collection, pipeline=list(stages), cursor={}, **fields)


OTHER_UUID = Binary(bytes(16), UUID_SUBTYPE)

REFUSED = [
    aggregate(collectionUUID=OTHER_UUID),
    aggregate(collection="none", collectionUUID=OTHER_UUID),
    aggregate(needsMerge=True),
    aggregate({"$match": {}}, collection=1),
    aggregate({"$match": TEXT}, collection="none"),
    aggregate({"$unionWith": "french"}),
    aggregate({"$lookup": {"from": "french", "localField": "a", "foreignField": "a", "as": "f"}}),
    aggregate(collection="french", collation={"locale": "de"}),
    command("find", awaitData=True),
    command("find", tailable=True),
    command("find", "capped", tailable=True, singleBatch=True),
    command("find", "capped", tailable=True, sort={"a": 1}),
    command("find", ntoreturn=1),
    command("find", ntoreturn=1, limit=1),
    command("find", limit=-1),
    command("find", min={"a": 1}, max={"b": 1}),
    command("find", "none", filter=TEXT),
    command("find", "view", tailable=True),
    command("distinct", key="a\0b"),
    command("distinct", key="$a", query={"$bad": 1}),
    command("distinct", "none", key="$a"),
    command("distinct", "view", key="$a", query={"$bad": 1}),
    command("distinct", "view", key="a.$"),
    command("distinct", key="a.", collation={"locale": "xx"}),
    command("count", limit=1.5),
    command("count", skip=-1, limit="x"),
    command("count", "view", limit=1.5),
    delete(limit=2),
    delete(limit=1.5),
    delete("view", limit=0),
    update(u={"$set": {"a": 1}}, upsertSupplied=True),
    update("none", q=TEXT, u={"$set": {"a": 1}}),
    update("view", u={"$set": {"a": 1}}),
    command("findAndModify", update={"a": 1}, remove=True),
    command("findAndModify", update={"a": 1}, fields={"a.$": 1}, new=True),
    command("findAndModify", update={"a": 1}, fields={"x": {"$meta": "sortKey"}}),
    command("findAndModify", update={"a": 1}, sort={"a": 3}),
    command("findAndModify", "none", query=TEXT, remove=True),
]

# One `_id` is not sorted, and a collection that does not exist has no document to project.
ACCEPTED = [
    command("findAndModify", query={"_id": 1}, update={"a": 1}, sort={"a": 3}),
    command("findAndModify", "none", query={"_id": 1}, update={"a": 1}, sort={"a": 3}),
    command("findAndModify", "none", update={"a": 1}, fields={"a": {"$bad": 1}}),
]


@pytest.fixture
def filled(db):
    db.c.insert_one({"_id": 1, "a": 1})
    db.create_collection("capped", capped=True, size=4096)
    db.create_collection("view", viewOn="c", pipeline=[])
    db.create_collection("french", viewOn="c", pipeline=[], collation={"locale": "fr"})
    return db


@pytest.mark.parametrize("asked", REFUSED, ids=str)
@pytest.mark.parametrize("verbosity", ["queryPlanner", "executionStats"])
def test_what_is_refused_is_refused_when_it_is_explained(filled, asked, verbosity):
    explained = failure(filled, SON([("explain", asked.copy()), ("verbosity", verbosity)]))
    assert explained == failure(filled, asked.copy())
    assert explained[0] != 0


def test_a_command_that_cannot_be_explained_says_so_before_its_own_mistakes(filled):
    for asked in [SON([("getMore", Int64(1)), ("collection", "c")]), command("insert", documents=[{}])]:
        code, message = failure(filled, SON([("explain", asked)]))[:2]
        assert (code, message) == (20, f"Cannot explain cmd: {next(iter(asked))}")


@pytest.mark.parametrize("asked", ACCEPTED, ids=str)
def test_what_is_accepted_is_accepted_when_it_is_explained(filled, asked):
    assert failure(filled, SON([("explain", asked.copy())]))[0] == 0
    assert failure(filled, asked.copy())[0] == 0


def test_an_explained_command_names_no_database(filled):
    for asked, code in ((command("find"), 40413), (command("count"), 40413), (command("find", **{"$db": "other"}), 73)):
        asked.setdefault("$db", filled.name)
        assert failure(filled, SON([("explain", asked)]))[0] == code
    both = [failure(filled, SON([("explain", command("aggregate", 1, pipeline=[], cursor={}))])),
            failure(filled, command("aggregate", 1, pipeline=[], cursor={}))]
    assert both == [(73, "{aggregate: 1} is not valid for an empty pipeline.")] * 2


@pytest.mark.parametrize("level", ["majority", "available", "linearizable", "snapshot"])
def test_an_explained_aggregate_reads_locally(filled, level):
    asked = command("aggregate", pipeline=[], explain=True, readConcern={"level": level})
    local = SON({**asked, "readConcern": {"level": "local"}})
    concern = f'{{ readConcern: {{ level: "{level}", provenance: "clientSupplied" }} }}'
    assert failure(filled, asked)[:2] == (
        72,
        f"Command aggregate does not support {concern} :: caused by :: Explain for the aggregate command cannot run "
        f"with a readConcern other than 'local'. Current readConcern level: {level}",
    )
    assert failure(filled, local)[0] == 0


def test_an_explained_aggregate_has_no_write_concern(filled):
    message = "Aggregation explain does not support the'writeConcern' option"
    for concern in ({}, {"w": 1}):
        asked = command("aggregate", pipeline=[{"$out": "o"}], writeConcern=concern)
        assert failure(filled, SON({**asked, "explain": True})) == (9, message)
        assert failure(filled, SON([("explain", SON({**asked, "cursor": {}}))])) == (9, message)


def test_a_find_and_modify_in_no_database_is_not_explained(client):
    none = client["nothing_here"]
    client.drop_database(none)
    for fields in ({"remove": True}, {"update": {}, "upsert": True}):
        asked = SON([("explain", command("findAndModify", **fields))])
        assert failure(none, asked)[:2] == (26, "database nothing_here does not exist")
    assert failure(none, SON([("explain", update(u={}))]))[0] == 0
