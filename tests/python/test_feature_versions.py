"""The feature compatibility version: by default 6.0's language; once set, that of 7.0 or 8.0, over restarts, and back."""
import datetime
import uuid

import pymongo
import pytest
import server
from bson import Binary, Int64
from pymongo.errors import OperationFailure

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="6.0 knows no later version")

UUID = "0e3b9063-8abd-4eb3-9f9f-010203040506"


@pytest.fixture
def own():
    with server.Server() as own:
        yield own


def connect(own):
    return pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=10_000)


def set_version(client, version):
    client.admin.command("setFeatureCompatibilityVersion", version, confirm=True)


def version(client):
    answer = client.admin.command("getParameter", 1, featureCompatibilityVersion=1)
    return answer["featureCompatibilityVersion"]


def refused(code, call, *args, **options):
    with pytest.raises(OperationFailure) as raised:
        call(*args, **options)
    assert raised.value.code == code, raised.value.details
    return raised.value.details["errmsg"]


def use_expressions(c):
    """Every expression, once; the newest last."""
    c.drop()
    c.insert_one({"_id": 1, "a": 12, "b": Int64(10), "list": [4, 1, 3, 2], "bytes": b"hi", "text": UUID})
    pipeline = [{"$project": {
        "_id": 0,
        "and": {"$bitAnd": ["$a", "$b"]}, "or": {"$bitOr": ["$a", 1]}, "xor": {"$bitXor": ["$a", 10]},
        "not": {"$bitNot": "$a"},
        "median": {"$median": {"input": "$list", "method": "approximate"}},
        "percentile": {"$percentile": {"input": "$list", "p": [0.25, 1], "method": "approximate"}},
        "month": {"$dateToString": {"date": {"$toDate": Int64(0)}, "format": "%b %B"}},
        "uuid": {"$toUUID": "$text"},
        "base64": {"$convert": {"input": "$bytes", "to": "string", "format": "base64"}},
        "hex": {"$convert": {"input": "6869", "to": {"type": "binData", "subtype": 0}, "format": "hex"}},
    }}]
    assert c.aggregate(pipeline).next() == {
        "and": 8, "or": 13, "xor": 6, "not": -13, "median": 2.0, "percentile": [1.0, 4.0], "month": "Jan January",
        "uuid": Binary.from_uuid(uuid.UUID(UUID)), "base64": "aGk=", "hex": b"hi",
    }


def use_stages(c):
    c.drop()
    c.insert_many([{"_id": n, "g": n % 2, "x": n} for n in range(6)])
    median = {"$median": {"input": "$x", "method": "approximate"}}
    most = {"$percentile": {"input": "$x", "p": [0.9], "method": "approximate"}}
    grouped = c.aggregate([{"$group": {"_id": "$g", "m": median, "p": most}}, {"$sort": {"_id": 1}}])
    assert list(grouped) == [{"_id": 0, "m": 2.0, "p": [4.0]}, {"_id": 1, "m": 3.0, "p": [5.0]}]
    window = {"window": {"documents": [-1, "current"]}}
    output = {"m": {**median, **window}, "p": {**most, **window}}
    seen = c.aggregate([{"$setWindowFields": {"sortBy": {"x": 1}, "output": output}}, {"$limit": 2}])
    assert [(d["m"], d["p"]) for d in seen] == [(0.0, [0.0]), (0.0, [1.0])]


def use_writes(c):
    c.drop()
    c.insert_many([{"_id": n, "x": n} for n in range(3)])
    command = {"q": {}, "u": {"$set": {"seen": 1}}, "sort": {"x": -1}}
    assert c.database.command("update", c.name, updates=[command])["nModified"] == 1
    command["u"] = [{"$set": {"seen": 2}}]
    assert c.database.command("update", c.name, updates=[{**command, "q": {"seen": None}}])["nModified"] == 1
    command["u"] = {"replaced": True}
    assert c.database.command("update", c.name, updates=[{**command, "sort": {"x": 1}}])["nModified"] == 1
    assert list(c.find({}, sort=[("_id", 1)])) == [
        {"_id": 0, "replaced": True}, {"_id": 1, "x": 1, "seen": 2}, {"_id": 2, "x": 2, "seen": 1}]
    refused(9, c.database.command, "update", c.name, updates=[{**command, "u": {"$set": {"a": 1}}, "multi": True}])
    sorted_update = {"update": c.name, "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "sort": {"x": -1}}]}
    plan = c.database.command("explain", sorted_update, verbosity="queryPlanner")["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"]) == ("UPDATE", "SORT")
    bulk = {"update": 0, "filter": {}, "updateMods": {"$set": {"bulk": 1}}, "sort": {"_id": -1}}
    ns_info = [{"ns": c.full_name}]
    assert c.database.client.admin.command("bulkWrite", 1, ops=[bulk], nsInfo=ns_info)["nModified"] == 1
    assert c.find_one({"bulk": 1})["_id"] == 2


def use_reports(client):
    admin = client.admin
    assert list(admin.aggregate([{"$listSampledQueries": {}}])) == []
    assert list(admin.aggregate([{"$listSampledQueries": {"namespace": "a.b"}}])) == []
    assert list(admin.aggregate([{"$querySettings": {"showDebugQueryShape": True}}])) == []
    refused(73, client.versions.c.aggregate, [{"$listSampledQueries": {}}])
    refused(40415, admin.aggregate, [{"$querySettings": {"x": 1}}])
    c = client.versions.c
    for stage in ("$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes"):
        refused(31082, c.aggregate, [{stage: {}}])
    refused(31082, c.create_search_index, {"definition": {}, "name": "x"})
    refused(31082, c.update_search_index, "x", {})
    refused(31082, c.drop_search_index, "x")
    assert c.aggregate([{"$limit": 1}, {"$project": {"_id": 0, "r": "$$USER_ROLES"}}]).next() == {"r": []}


def use_time_series(db):
    db.drop_collection("weather")
    db.create_collection("weather", timeseries={"timeField": "t", "metaField": "m"})
    start = datetime.datetime(2026, 1, 1)
    db.weather.insert_many([{"_id": n, "t": start + datetime.timedelta(seconds=n), "m": n % 2, "x": n % 5}
                            for n in range(20)])
    left = set(range(20))

    def check(count, done, gone):
        assert done.deleted_count == count
        left.difference_update(gone)
        assert {d["_id"] for d in db.weather.find()} == left

    check(4, db.weather.delete_many({"x": 3}), {3, 8, 13, 18})
    early = {"$lt": start + datetime.timedelta(seconds=6)}
    check(2, db.weather.delete_many({"m": 1, "t": early}), {1, 5})
    check(1, db.weather.delete_one({"x": 2, "_id": 12}), {12})
    check(0, db.weather.delete_one({"x": 99}), set())
    check(2, db.weather.delete_many({"$expr": {"$gt": ["$_id", 16]}}), {17, 19})
    # Later measurements go into the same buckets.
    db.weather.insert_one({"_id": 50, "t": start, "m": 1, "x": 7})
    left.add(50)
    check(0, db.weather.delete_many({"x": "none"}), set())
    validated = db.command("validate", "system.buckets.weather")
    assert validated["valid"], validated
    check(len(left), db.weather.delete_many({"x": {"$gte": 0}}), set(left))
    assert db["system.buckets.weather"].count_documents({}) == 0


def use_custom_buckets(db):
    db.drop_collection("custom")
    span = {"bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 300}
    for wrong in ({"bucketRoundingSeconds": 300}, {**span, "bucketRoundingSeconds": 60}, {**span, "granularity": "hours"}):
        with pytest.raises(OperationFailure):
            db.create_collection("custom", timeseries={"timeField": "t", **wrong})
    db.create_collection("custom", timeseries={"timeField": "t", "metaField": "m", **span})

    def options():
        return db.list_collections(filter={"name": "custom"}).next()["options"]["timeseries"]

    assert options() == {"timeField": "t", "metaField": "m", **span}
    start = datetime.datetime(2026, 1, 1, 10, 2)
    db.custom.insert_many([{"t": start + datetime.timedelta(minutes=n), "m": 1, "n": n} for n in range(10)])
    buckets = db["system.buckets.custom"]
    begins = sorted(b["control"]["min"]["t"].minute for b in buckets.find())
    assert begins == [0, 5, 10]
    later = {"$gte": start + datetime.timedelta(minutes=4)}
    assert [d["n"] for d in db.custom.find({"t": later}).sort("t", 1)] == list(range(4, 10))
    refused(72, db.command, "collMod", "custom", timeseries={"bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 60})
    refused(72, db.command, "collMod", "custom", timeseries={"granularity": "hours"})
    span = {"bucketMaxSpanSeconds": 86400, "bucketRoundingSeconds": 86400}
    db.command("collMod", "custom", timeseries=span)
    assert options() == {"timeField": "t", "metaField": "m", **span}
    db.custom.insert_many([{"t": datetime.datetime(2026, 2, 1, n), "m": 2} for n in range(24)])
    assert buckets.count_documents({}) == 4
    assert db.custom.count_documents({"m": 2, "t": {"$lt": datetime.datetime(2026, 2, 1, 12)}}) == 12


def use_out_to_time_series(db):
    for name in ("source", "series", "plain"):
        db.drop_collection(name)
    start = datetime.datetime(2026, 1, 1)
    db.source.insert_many([{"_id": n, "t": start + datetime.timedelta(minutes=n), "m": n % 3} for n in range(100)])
    out = {"db": db.name, "coll": "series", "timeseries": {"timeField": "t", "metaField": "m"}}
    db.source.aggregate([{"$out": out}])
    shown = db.list_collections(filter={"name": "series"}).next()
    assert (shown["type"], shown["options"]["timeseries"]["metaField"]) == ("timeseries", "m")
    assert db.series.count_documents({}) == 100
    # Once more it takes the place of what is there, all at once.
    db.series.create_index("m")
    db.source.aggregate([{"$match": {"m": 1}}, {"$out": out}])
    assert {d["_id"] for d in db.series.find()} == set(range(1, 100, 3))
    assert "m_1" in db.series.index_information()
    db.series.insert_one({"_id": 500, "t": start, "m": 1})
    assert db.series.count_documents({"m": 1}) == 34
    bad = [{"$set": {"t": {"$cond": [{"$eq": ["$_id", 50]}, "no date", "$t"]}}}, {"$out": out}]
    refused(2, db.source.aggregate, bad)
    assert db.series.count_documents({}) == 34
    db.drop_collection("series")
    refused(2, db.source.aggregate, bad)
    assert not [c for c in db.list_collection_names() if "series" in c or c.startswith("tmp.")]
    db.plain.insert_one({})
    refused(72, db.source.aggregate, [{"$out": {**out, "coll": "plain"}}])
    refused(40414, db.source.aggregate, [{"$out": {**out, "timeseries": {}}}])


def use_everything(client):
    c = client.versions.c
    use_expressions(c)
    use_stages(c)
    use_writes(c)
    use_reports(client)
    use_time_series(client.versions)
    use_custom_buckets(client.versions)
    use_out_to_time_series(client.versions)


def check_is_6_0(client):
    """6.0's errors, and what a driver sees of it."""
    c = client.versions.c
    if c.estimated_document_count() == 0:
        c.insert_one({"_id": 0})
    for operator in ("$bitAnd", "$bitOr", "$bitXor", "$bitNot", "$median", "$percentile", "$toUUID"):
        said = refused(168, c.aggregate, [{"$match": {"$expr": {operator: []}}}])
        assert said == "Unrecognized expression '%s'" % operator
    median = {"$median": {"input": "$x", "method": "approximate"}}
    assert refused(15952, c.aggregate, [{"$group": {"_id": 1, "m": median}}]) == "unknown group operator '$median'"
    refused(9, c.aggregate, [{"$setWindowFields": {"output": {"m": median}}}])
    refused(40415, c.database.command, "update", c.name, updates=[{"q": {}, "u": {"$set": {"a": 1}}, "sort": {}}])
    refused(59, client.admin.command, "bulkWrite", 1, ops=[], nsInfo=[])
    refused(168, c.database.create_collection, "v", validator={"$expr": {"$bitAnd": [1, 1]}})
    refused(40324, client.admin.aggregate, [{"$listSampledQueries": {}}])
    refused(6047401, c.aggregate, [{"$search": {}}])
    refused(59, c.database.command, "createSearchIndexes", c.name, indexes=[])
    refused(17276, c.aggregate, [{"$set": {"r": "$$USER_ROLES"}}])
    c.database.drop_collection("weather")
    c.database.create_collection("weather", timeseries={"timeField": "t", "metaField": "m"})
    refused(72, c.database.weather.delete_many, {"x": 1})
    span = {"timeField": "t", "bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 300}
    refused(40415, c.database.create_collection, "custom_6_0", timeseries=span)
    refused(16994, c.aggregate, [{"$out": {"db": "versions", "coll": "o", "timeseries": {"timeField": "t"}}}])
    refused(20, c.database.weather.delete_one, {"m": 1})
    assert client.admin.command("hello")["maxWireVersion"] == 17
    assert client.server_info()["version"].startswith("6.0.")


@pytest.mark.embedded
def test_a_version_is_set_kept_and_set_back(own):
    with connect(own) as client:
        assert version(client) == {"version": "6.0"}
        check_is_6_0(client)
        refused(7369100, client.admin.command, "setFeatureCompatibilityVersion", "8.0")
        set_version(client, "8.0")
        assert version(client) == {"version": "8.0"}
        assert client.admin.system.version.find_one() == {"_id": "featureCompatibilityVersion", "version": "8.0"}
        use_everything(client)
    own.kill()
    own.start()
    with connect(own) as client:
        assert version(client) == {"version": "8.0"}
        assert client.admin.command("hello")["maxWireVersion"] == 25
        assert client.server_info()["version"].startswith("8.0.")
        status = client.admin.command("serverStatus")
        assert status["featureCompatibilityVersion"]["major"] == 8
        use_everything(client)
        client.admin.command("setFeatureCompatibilityVersion", "8.0")
        refused(7369100, client.admin.command, "setFeatureCompatibilityVersion", "6.0")
        set_version(client, "6.0")
        check_is_6_0(client)
    own.kill()
    own.start()
    with connect(own) as client:
        assert version(client) == {"version": "6.0"}
        check_is_6_0(client)


def test_7_0_has_no_8_0(own):
    with connect(own) as client:
        set_version(client, "7.0")
        assert client.admin.command("hello")["maxWireVersion"] == 21
        c = client.versions.c
        use_stages(c)
        refused(168, c.aggregate, [{"$match": {"$expr": {"$toUUID": "$x"}}}])
        refused(40415, c.database.command, "update", c.name, updates=[{"q": {}, "u": {"$set": {"a": 1}}, "sort": {}}])


@pytest.mark.embedded
def test_validators_and_views_of_a_later_version_stay(own):
    with connect(own) as client:
        set_version(client, "8.0")
        db = client.versions
        db.create_collection("odd", validator={"$expr": {"$eq": [{"$bitAnd": ["$x", 1]}, 1]}})
        db.create_collection("view", viewOn="odd", pipeline=[{"$set": {"not": {"$bitNot": "$x"}}}])
        db.odd.insert_one({"_id": 1, "x": 3})
        assert db.view.find_one() == {"_id": 1, "x": 3, "not": -4}
        set_version(client, "6.0")
        refused(121, db.odd.insert_one, {"x": 2})
        refused(168, db.view.find_one)
    own.kill()
    own.start()
    with connect(own) as client:
        db = client.versions
        refused(121, db.odd.insert_one, {"x": 2})
        db.odd.insert_one({"_id": 2, "x": 5})
        set_version(client, "8.0")
        assert db.view.find_one({"_id": 2}) == {"_id": 2, "x": 5, "not": -6}


def test_mistakes_are_told_as_6_0_tells_them(own):
    with connect(own) as client:
        set_ = "setFeatureCompatibilityVersion"
        for bad in ("", "6", "5.1", "9.0", "8.0 "):
            said = refused(4926900, client.admin.command, set_, bad)
            assert said.startswith("Invalid feature compatibility version value, expected '5.0' or '5.3' or '6.0. See")
        refused(115, client.admin.command, set_, "5.0")
        refused(14, client.admin.command, set_, 8)
        refused(40414, client.admin.command, set_, None)
        refused(40415, client.admin.command, set_, "6.0", extra=1)
        refused(20, client.admin.command, set_, "6.0", downgradeOnDiskChanges=True)
        refused(2, client.admin.command, set_, "6.0", phase="x")
        refused(13, client.test.command, set_, "6.0")
        refused(14, client.admin.command, set_, "8.0", confirm="yes")
        assert version(client) == {"version": "6.0"}


@pytest.mark.parametrize("options", [(), ("--replSet", "rs0")], ids=["mongos", "replSet"])
def test_a_driver_offers_what_8_0_has(options):
    with server.Server(*options) as own, connect(own) as client:
        with pytest.raises(pymongo.errors.InvalidOperation):
            client.bulk_write([pymongo.InsertOne({"_id": 1}, namespace="versions.c")])
        set_version(client, "8.0")
        with connect(own) as newer:
            models = [
                *(pymongo.InsertOne({"_id": n, "x": n}, namespace="versions.c") for n in range(2000)),
                pymongo.UpdateOne({}, {"$set": {"last": True}}, namespace="versions.c", sort={"x": -1}),
                pymongo.UpdateMany({"x": {"$lt": 3}}, {"$inc": {"x": 1}}, namespace="versions.c"),
                pymongo.ReplaceOne({"_id": 9}, {"new": 1}, upsert=True, namespace="versions.d"),
                pymongo.DeleteOne({"_id": 5}, namespace="versions.c"),
            ]
            done = newer.bulk_write(models, verbose_results=True)
            assert (done.inserted_count, done.modified_count, done.upserted_count, done.deleted_count) == (
                2000, 4, 1, 1)
            assert done.update_results[2002].upserted_id == 9
            c = newer.versions.c
            assert c.find_one({"last": True})["_id"] == 1999
            assert c.update_one({}, {"$set": {"first": True}}, sort={"x": 1}).modified_count == 1
            assert c.find_one({"first": True})["x"] == 1
            assert c.replace_one({"first": True}, {"x": 0}, sort={"x": 1}).modified_count == 1
            with pytest.raises(pymongo.errors.ClientBulkWriteException) as raised:
                newer.bulk_write([pymongo.InsertOne({"_id": 1}, namespace="versions.c"),
                                  pymongo.InsertOne({"_id": 2}, namespace="versions.e")], ordered=False)
            assert raised.value.write_errors[0]["code"] == 11000
            assert newer.versions.e.count_documents({}) == 1
            # With an end of its own, as the application that waits for each result has it.
            assert newer.bulk_write([pymongo.DeleteMany({}, namespace="versions.e")]).deleted_count == 1


def test_change_streams_tell_names_from_numbers(own):
    with connect(own) as client:
        c = client.t.c
        with c.watch(show_expanded_events=True) as stream:
            stream.try_next()
            c.insert_one({"_id": 1, "a": {"1": 1}, "b": [{"0": 1}]})
            c.update_one({"_id": 1}, {"$set": {"a.1": 2}})
            assert "disambiguatedPaths" not in [next(stream) for _ in range(3)][-1]["updateDescription"]
        client.admin.command("setFeatureCompatibilityVersion", "7.0", confirm=True)
        with c.watch(show_expanded_events=True) as stream, c.watch() as plain:
            plain.try_next()
            stream.try_next()
            c.update_one({"_id": 1}, {"$set": {"a.1": 3, "b.0.0": 2}})
            c.update_one({"_id": 1}, {"$set": {"x": 1}})
            described = next(stream)["updateDescription"]
            assert described["disambiguatedPaths"] == {"a.1": ["a", "1"], "b.0.0": ["b", 0, "0"]}
            assert next(stream)["updateDescription"]["disambiguatedPaths"] == {}
            assert "disambiguatedPaths" not in next(plain)["updateDescription"]
