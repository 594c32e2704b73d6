"""The counters of serverStatus grow with the operations, as in mongod."""
import contextlib

import pytest
import server
from pymongo import MongoClient, ReadPreference
from pymongo.errors import BulkWriteError
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
