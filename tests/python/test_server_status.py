"""The counters of serverStatus grow with the operations, as in mongod."""
import contextlib
import re

import pytest
import server
from bson import Code
from pymongo import MongoClient, ReadPreference
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.read_concern import ReadConcern


@pytest.fixture(scope="module")
def own():
    with server.Server() as own:
        yield own


@pytest.fixture
def client(own):
    with MongoClient(own.uri, appname="counting") as client:
        client.test.c.drop()
        client.test.status.drop()
        client.test.c.insert_many([{"_id": i, "a": i % 7} for i in range(300)])
        yield client


def read(client, path):
    value = client.admin.command("serverStatus")
    for part in path.split("/"):
        value = value[part]
    return value


@contextlib.contextmanager
def goes_up(client, path, by=1):
    before = read(client, path)
    yield
    assert read(client, path) - before == by, path


def test_cursors(client):
    cursors = "metrics/cursor/"
    with goes_up(client, cursors + "totalOpened", 2), goes_up(client, cursors + "moreThanOneBatch", 1), \
            goes_up(client, cursors + "lifespan/lessThan1Second", 2):
        assert len(list(client.test.c.find(batch_size=200))) == 300
        only_first = client.test.c.find(batch_size=2)
        next(only_first)
        only_first.close()
    assert read(client, cursors + "open/total") == 0


def test_scans_and_sorts(client):
    with goes_up(client, "metrics/queryExecutor/collectionScans/total"), \
            goes_up(client, "metrics/queryExecutor/collectionScans/nonTailable"), \
            goes_up(client, "metrics/operation/scanAndOrder"):
        list(client.test.c.find(batch_size=1000).sort("a", 1))
    with goes_up(client, "metrics/queryExecutor/collectionScans/total", 0):
        client.test.c.find_one({"_id": 5})


def test_what_reads_ask_for(client):
    with goes_up(client, "readConcernCounters/nonTransactionOps/majority"):
        client.test.get_collection("c", read_concern=ReadConcern("majority")).find_one()
    with goes_up(client, "readConcernCounters/nonTransactionOps/local"):
        client.test.get_collection("c", read_concern=ReadConcern("local")).count_documents({})


@pytest.mark.skipif(server.is_mongod(), reason="mongod counts them in a set alone")
def test_from_which_members_reads_are_wanted(client):
    with goes_up(client, "readPreferenceCounters/executedOnPrimary/nearest/external"):
        client.test.get_collection("c", read_preference=ReadPreference.NEAREST).find_one()


def test_stages_and_operators(client):
    with goes_up(client, "metrics/aggStageCounters/$group", 2), goes_up(client, "metrics/aggStageCounters/$redact"), \
            goes_up(client, "metrics/operatorCounters/expressions/$toUpper"), \
            goes_up(client, "metrics/operatorCounters/groupAccumulators/$push"):
        list(client.test.c.aggregate([{"$group": {"_id": "$a", "all": {"$push": "$_id"}}}, {"$redact": "$$KEEP"},
                                      {"$group": {"_id": {"$toUpper": "x"}}}]))


def test_functions_of_windows_are_no_accumulators_of_groups(client):
    operators = "metrics/operatorCounters/"
    with goes_up(client, operators + "windowAccumulators/$sum"), goes_up(client, operators + "windowAccumulators/$rank"), \
            goes_up(client, operators + "groupAccumulators/$sum", 0):
        list(client.test.c.aggregate([{"$setWindowFields": {
            "sortBy": {"a": 1}, "output": {"s": {"$sum": "$a"}, "r": {"$rank": {}}}}}]))


def test_forms_of_updates(client):
    c, commands, query = client.test.c, "metrics/commands/", "metrics/query/"
    with goes_up(client, commands + "update/pipeline"), goes_up(client, commands + "update/arrayFilters"), \
            goes_up(client, query + "updateManyCount"), goes_up(client, query + "deleteManyCount"):
        c.update_one({"_id": 1}, [{"$set": {"x": 1}}])
        c.update_many({"_id": 1}, {"$set": {"l": [1, 2]}})
        c.update_one({"_id": 1}, {"$set": {"l.$[i]": 3}}, array_filters=[{"i": 1}])
        c.delete_many({"_id": -1})
        c.delete_one({"_id": -1})
    with goes_up(client, commands + "findAndModify/pipeline"), goes_up(client, commands + "findAndModify/arrayFilters"):
        c.find_one_and_update({"_id": 1}, [{"$set": {"x": 2}}])
        c.find_one_and_update({"_id": 1}, {"$set": {"l.$[i]": 4}}, array_filters=[{"i": 2}])


# Returns the features by which an index is counted.
FEATURES = [
    ([("f", 1)], {}, {"normal", "single"}),
    ([("f", 1), ("g", -1)], {}, {"normal", "compound"}),
    ([("f", "hashed")], {}, {"hashed", "single"}),
    ([("f", "text"), ("g", "text")], {}, {"text", "single"}),
    ([("f", 1), ("g", "text")], {}, {"text", "compound"}),
    ([("f", "2d")], {}, {"2d", "single"}),
    ([("f", "2dsphere"), ("g", 1)], {}, {"2dsphere", "compound"}),
    ([("f.$**", 1)], {}, {"wildcard", "single"}),
    ([("f", 1)], {"unique": True, "sparse": True}, {"normal", "single", "unique", "sparse"}),
    ([("f", 1)], {"partialFilterExpression": {"a": 1}}, {"normal", "single", "partial"}),
    ([("f", 1)], {"expireAfterSeconds": 9, "collation": {"locale": "en"}}, {"normal", "single", "ttl", "collation"}),
    ([("f", 1)], {"prepareUnique": True}, {"normal", "single", "prepareUnique"}),
]


@pytest.mark.parametrize("keys, options, features", FEATURES, ids=str)
def test_indexes_are_counted_by_their_features(client, keys, options, features):
    before = read(client, "indexStats/features")
    name = client.test.indexed.create_index(keys, **options)
    try:
        after = read(client, "indexStats/features")
        grown = {feature for feature in after if after[feature]["count"] > before[feature]["count"]}
        # The first one also makes the collection.
        assert grown - {"id"} == features
    finally:
        client.test.indexed.drop_index(name)


def test_uses_of_indexes_are_counted_by_their_features(client):
    client.test.c.create_index("a", sparse=True)
    features = "indexStats/features/"
    with goes_up(client, features + "sparse/accesses", 2), goes_up(client, features + "single/accesses", 2), \
            goes_up(client, features + "compound/accesses", 0):
        for _ in range(2):
            client.test.c.find_one({"a": 3})


def test_names_of_applications(client, own):
    from pymongo.server_api import ServerApi
    with MongoClient(own.uri, appname="first", server_api=ServerApi("1")) as other:
        other.admin.command("ping")
        versions = read(client, "metrics/apiVersions")
    assert versions["counting"] == ["default"]
    assert "1" in versions["first"]


def test_documents_with_dollars(client):
    with goes_up(client, "metrics/dotsAndDollarsFields/inserts"):
        client.test.command("insert", "c", documents=[{"_id": "d", "$a": 1}, {"_id": "e", "a": {"$b": 1}}])


def test_logins(own):
    with MongoClient(own.uri) as client:
        client.admin.command("createUser", "counted", pwd="p", roles=["root"])
        mechanism = "security/authentication/mechanisms/SCRAM-SHA-256/"
        with goes_up(client, mechanism + "authenticate/received"), goes_up(client, mechanism + "authenticate/successful"):
            with MongoClient(own.uri, username="counted", password="p", authMechanism="SCRAM-SHA-256",
                             maxPoolSize=1, directConnection=True) as user:
                user.admin.command("ping")


def test_sections_are_left_out_on_request(client):
    status = client.admin.command("serverStatus", metrics=0, locks=0, wiredTiger=0)
    assert not {"metrics", "locks", "wiredTiger"} & set(status)
    assert status["opcounters"]["insert"] >= 300


def test_documents_that_are_found_and_modified(client):
    client.test.status.insert_many([{"_id": i} for i in range(3)])
    with goes_up(client, "metrics/document/updated"):
        client.test.status.find_one_and_update({"_id": 1}, {"$set": {"a": 1}})
    with goes_up(client, "metrics/document/deleted"):
        client.test.status.find_one_and_delete({"_id": 1})


def test_a_batch_that_stops_counts_what_was_tried(client):
    client.test.status.insert_one({"_id": 1})
    with goes_up(client, "opcounters/insert", by=2), goes_up(client, "asserts/user", by=1):
        with pytest.raises(BulkWriteError):
            client.test.status.insert_many([{"_id": 0}, {"_id": 1}, {"_id": 2}])
    command = {"update": "status", "updates": [{"q": {"_id": 0}, "u": {"$set": {"_id": 9}}}, {"q": {}, "u": {"$set": {"a": 1}}}]}
    with goes_up(client, "opcounters/update", by=1):
        client.test.command(command)


def test_look_ups_by_id_use_its_index(client):
    client.test.status.insert_one({"_id": 1})

    def uses():
        return next(index["accesses"]["ops"] for index in client.test.status.aggregate([{"$indexStats": {}}]))

    before = uses()
    client.test.status.find_one({"_id": 1})
    client.test.status.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert uses() == before + 2
    client.test.command("explain", {"find": "status", "filter": {"_id": {"$gt": 0}}}, verbosity="executionStats")
    assert uses() == before + 2


def test_a_getmore_has_no_concern_of_its_own(client):
    client.test.status.insert_many([{} for _ in range(10)])
    with goes_up(client, "readConcernCounters/nonTransactionOps/none"):
        list(client.test.status.find(batch_size=5))


def test_who_waits_for_a_change_of_the_topology_is_forgotten(client):
    version = client.admin.command("hello")["topologyVersion"]
    # Monitors of other clients wait too.
    before = read(client, "connections/awaitingTopologyChanges")
    for _ in range(300):
        client.admin.command("hello", topologyVersion=version, maxAwaitTimeMS=1)
    assert read(client, "connections/awaitingTopologyChanges") < before + 10


def changes(client, work):
    """The counters that work changes, by path."""
    def leaves(value, path=""):
        for name, inner in value.items():
            if isinstance(inner, dict):
                yield from leaves(inner, path + name + "/")
            elif isinstance(inner, int):
                yield path + name, inner
    before = dict(leaves(client.admin.command("serverStatus")))
    work()
    after = dict(leaves(client.admin.command("serverStatus")))
    return {path: value - before.get(path, 0) for path, value in after.items() if value != before.get(path, 0)}


def refused(db, command):
    with pytest.raises(OperationFailure):
        db.command(command)


FEW = {"$match": {"_id": {"$lt": 20}}}
EMIT = {"map": Code("function() { emit(this.a, 1) }"), "reduce": Code("function(k, v) { return Array.sum(v) }")}


# Stages that write: opcounters of inserts and updates, documents inserted and updated. Ten of the
# twenty documents are in the target already.
@pytest.mark.parametrize("stage, counted", [
    ({"$out": "other"}, (20, 0, 20, 0)),
    ({"$merge": "target"}, (0, 20, 0, 10)),
    ({"$merge": {"into": "target", "whenMatched": "replace"}}, (0, 20, 0, 10)),
    ({"$merge": {"into": "target", "whenMatched": "keepExisting"}}, (0, 20, 0, 10)),
    ({"$merge": {"into": "target", "whenMatched": [{"$set": {"z": 1}}]}}, (0, 20, 0, 10)),
    ({"$merge": {"into": "target", "whenNotMatched": "discard"}}, (0, 20, 0, 10)),
    ({"$merge": {"into": "fresh", "whenMatched": "fail"}}, (20, 0, 20, 0)),
], ids=str)
def test_writes_of_stages_are_counted_as_those_of_commands(client, stage, counted):
    for name in "target", "fresh", "other":
        client.test[name].drop()
    client.test.target.insert_many([{"_id": i} for i in range(10)])
    found = changes(client, lambda: list(client.test.c.aggregate([FEW, stage])))
    paths = "opcounters/insert", "opcounters/update", "metrics/document/inserted", "metrics/document/updated"
    assert tuple(found.get(path, 0) for path in paths) == counted
    assert found["metrics/cursor/totalOpened"] == 1


@pytest.mark.parametrize("out, path", [("other", "opcounters/insert"), ({"merge": "other"}, "opcounters/update"),
                                       ({"reduce": "other"}, "opcounters/update")], ids=str)
def test_results_of_map_reduce_are_counted(client, out, path):
    with goes_up(client, path, 7):
        client.test.command({"mapReduce": "c", **EMIT, "out": out})


def test_documents_count_as_updated_if_they_match(client):
    with goes_up(client, "metrics/document/updated", 2):
        client.test.c.update_many({"_id": {"$lt": 2}}, {"$set": {"same": 1}})
    with goes_up(client, "metrics/document/updated", 2):
        client.test.c.update_many({"_id": {"$lt": 2}}, {"$set": {"same": 1}})
    with goes_up(client, "metrics/document/updated", 0):
        client.test.c.update_one({"_id": "fresh"}, {"$set": {"same": 1}}, upsert=True)


def test_cursors_of_pipelines_are_opened_even_for_one_batch(client):
    cursors = "metrics/cursor/"
    with goes_up(client, cursors + "totalOpened", 1), goes_up(client, cursors + "moreThanOneBatch", 0), \
            goes_up(client, cursors + "lifespan/lessThan1Second"):
        list(client.test.c.aggregate([FEW]))
    with goes_up(client, cursors + "totalOpened", 1), goes_up(client, cursors + "moreThanOneBatch", 1):
        list(client.test.c.aggregate([], batchSize=200))
    with goes_up(client, cursors + "totalOpened", 0):
        list(client.test.c.find({"_id": {"$lt": 20}}))


@pytest.mark.skipif(server.is_mongod(), reason="mongod needs a set for transactions")
def test_transactions_have_latencies(client):
    with goes_up(client, "opLatencies/transactions/ops", 2), client.start_session() as session:
        with session.start_transaction():
            client.test.c.update_one({"_id": 1}, {"$set": {"t": 1}}, session=session)
        session.start_transaction()
        client.test.c.update_one({"_id": 1}, {"$set": {"t": 1}}, session=session)
        session.abort_transaction()


@pytest.mark.parametrize("command, path", [
    ({"aggregate": "c", "pipeline": [], "cursor": {}, "unknown": 1}, "reads"),
    ({"find": "c", "maxTimeMS": -1}, "reads"),
    ({"find": "c", "readConcern": {"level": "unknown"}}, "reads"),
    ({"insert": "c", "documents": [{}], "unknown": 1}, "writes"),
    ({"findAndModify": "c", "unknown": 1}, "writes"),
    ({"distinct": "c", "key": "a", "unknown": 1}, "reads"),
    ({"getParameter": 1, "logLevel": 1}, "commands"),
    ({"commitTransaction": 1}, "commands"),
    ({"ping": 1, "unknown": 1}, "commands"),
], ids=str)
def test_a_command_that_is_not_understood_has_only_a_latency(client, command, path):
    name = next(iter(command))
    found = changes(client, lambda: refused(client.test, command))
    assert not [path for path in found if path.startswith("metrics/commands/%s/" % name)]
    if name != "aggregate":
        # mongod counts aggregations by what their stages do.
        assert found["opLatencies/%s/ops" % path] == (2 if path == "commands" else 1)
    status = client.admin.command("serverStatus")["metrics"]["commands"]
    assert not [name for name, counts in status.items() if isinstance(counts, dict) and "rejected" in counts]


def test_a_failed_command_counts_as_failed(client):
    found = changes(client, lambda: refused(client.test, {"find": "c", "filter": {"$unknown": 1}}))
    assert found["metrics/commands/find/failed"] == found["metrics/commands/find/total"] == 1


def test_validators_are_counted(client):
    path = "metrics/commands/%s/validator/"
    client.test.validated.drop()
    with goes_up(client, path % "create" + "total", 3), goes_up(client, path % "create" + "jsonSchema", 1), \
            goes_up(client, path % "create" + "failed", 1):
        refused(client.test, {"create": "validated", "validator": {"$unknown": 1}})
        client.test.command({"create": "validated", "validator": {"$jsonSchema": {"required": ["a"]}}})
        client.test.validated.drop()
        client.test.command({"create": "validated", "validator": {"a": 1}})
        client.test.validated.drop()
        client.test.command({"create": "validated", "validator": {}})
        refused(client.test, {"create": "validated", "validator": {"$jsonSchema": {"required": ["a"]}}})
    with goes_up(client, path % "collMod" + "total", 3), goes_up(client, path % "collMod" + "jsonSchema", 1), \
            goes_up(client, path % "collMod" + "failed", 1):
        for validator in {"$jsonSchema": {}}, {"$and": [{"$jsonSchema": {}}]}, {}:
            client.test.command({"collMod": "validated", "validator": validator})
        refused(client.test, {"collMod": "validated", "validator": {"$unknown": 1}})


# The counts of each request in `operatorCounters` and `aggStageCounters`.
USES = [
    ("find", {"filter": {"a": {"$not": {"$gt": 1}}}}, {"match/$not": 1, "match/$gt": 1}),
    ("find", {"filter": {"a": 1, "b": {"c": 1}}}, {"match/$eq": 2}),
    ("find", {"filter": {"_id": 1}}, {"match/$eq": 1}),
    ("find", {"filter": {"a": {"$regex": "x", "$options": "i"}}}, {"match/$regex": 1}),
    ("find", {"filter": {"a": {"$not": re.compile("x")}}}, {"match/$not": 1, "match/$regex": 1}),
    ("find", {"filter": {"a": {"$elemMatch": {"b": 1, "$or": [{"c": 1}]}}}},
     {"match/$elemMatch": 1, "match/$or": 1, "match/$eq": 2}),
    ("find", {"filter": {"$expr": {"$gt": [{"$add": ["$a", 1]}, 2]}}},
     {"match/$expr": 1, "expressions/$gt": 1, "expressions/$add": 1}),
    ("find", {"projection": {"z": {"$add": ["$a", 1]}}}, {}),
    ("find", {"filter": {"a": {"$gt": 1, "$unknown": 1}}}, {}),
    ("count", {"query": {"a": {"$gt": 1}}}, {}),
    ("distinct", {"key": "a", "query": {"a": {"$gt": 1}}}, {}),
    ("update", {"updates": [{"q": {"a": 1}, "u": {"$set": {"x": 1}}}]}, {"match/$eq": 1}),
    ("update", {"updates": [{"q": {"a": 1}, "u": {"$pull": {"x": {"$gt": 1}}}}]}, {"match/$eq": 1}),
    ("update", {"updates": [{"q": {"_id": 1}, "u": [{"$set": {"x": {"$add": [1, "$a"]}}}]}]},
     {"expressions/$add": 1, "stages/$set": 1}),
    ("delete", {"deletes": [{"q": {"_id": 1}, "limit": 1}]}, {}),
    ("delete", {"deletes": [{"q": {"a": -1}, "limit": 1}]}, {"match/$eq": 1}),
    ("findAndModify", {"query": {"a": {"$gt": 1}}, "update": {"$set": {"x": 1}}}, {"match/$gt": 1}),
    ("findAndModify", {"query": {"_id": 1}, "update": {"$set": {"x": 1}}}, {}),
    ("aggregate", {"pipeline": [FEW, {"$facet": {"a": [{"$set": {"z": {"$abs": "$a"}}}]}}], "cursor": {}},
     {"match/$lt": 1, "stages/$match": 1, "stages/$facet": 1, "stages/$set": 1, "expressions/$abs": 1}),
    ("aggregate", {"pipeline": [FEW, {"$lookup": {
        "from": "c", "let": {"x": "$a"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$x"]}}}], "as": "y"}}],
        "cursor": {}},
     {"match/$lt": 1, "match/$expr": 1, "expressions/$eq": 1, "stages/$match": 2, "stages/$lookup": 1}),
]


@pytest.mark.parametrize("name, fields, counted", USES, ids=str)
def test_operators_and_stages_are_counted_once_for_each_place(client, name, fields, counted):
    def run():
        with contextlib.suppress(OperationFailure):
            client.test.command({name: "c", **fields})
    found = {path.removeprefix("metrics/").replace("operatorCounters/", "").replace("aggStageCounters", "stages"): n
             for path, n in changes(client, run).items() if "operatorCounters" in path or "aggStageCounters" in path}
    assert found == counted


def test_stages_and_operators_of_views_are_counted_with_those_that_read_them(client):
    client.test.shown.drop()
    with goes_up(client, "metrics/aggStageCounters/$set", 0):
        client.test.create_collection("shown", viewOn="c", pipeline=[{"$set": {"z": {"$abs": "$a"}}}])
    with goes_up(client, "metrics/aggStageCounters/$set"), goes_up(client, "metrics/operatorCounters/expressions/$abs"):
        list(client.test.shown.aggregate([{"$limit": 1}]))


def test_what_failed_operations_examined_is_not_counted(client):
    client.test.mixed.drop()
    client.test.mixed.insert_many([{"a": 1}, {"a": "x"}])
    with goes_up(client, "metrics/queryExecutor/scannedObjects", 0):
        refused(client.test, {"find": "mixed", "filter": {"$expr": {"$add": ["$a", 1]}}})
