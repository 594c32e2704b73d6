"""Server parameters: bounds, what those that act change, and which mechanisms are taken."""
import pytest
import server
from bson import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure


@pytest.fixture(scope="module")
def own():
    with server.Server() as own:
        yield own


@pytest.fixture
def admin(own):
    with MongoClient(own.uri) as client:
        yield client.admin


def refused(admin, **parameter):
    with pytest.raises(OperationFailure) as refusal:
        admin.command("setParameter", 1, **parameter)
    return refusal.value.code, refusal.value.details["errmsg"]


@pytest.mark.parametrize("parameter, message", [
    ({"syncdelay": 5000}, "5000 is not less than or equal to 3600"),
    ({"flowControlTargetLagSeconds": 0}, "0 is not greater than 0"),
    ({"flowControlDecayConstant": 1}, "1 is not less than 1"),
    ({"ttlMonitorSleepSecs": 0}, "0 is not greater than 0"),
    ({"flowControlDecayConstant": float("nan")}, "nan is not less than 1"),
    ({"flowControlFudgeFactor": float("nan")}, "nan is not greater than 0"),
    ({"flowControlThresholdLagPercentage": float("nan")}, "nan is not less than or equal to 1"),
])
def test_numbers_have_bounds(admin, parameter, message):
    (name,) = parameter
    assert refused(admin, **parameter) == (2, f"Invalid value for parameter {name}: {message}")


@pytest.mark.parametrize("parameter, kind", [
    ({"maxLogSizeKB": "1"}, "value to integral"),
    ({"ttlMonitorSleepSecs": "1"}, "value to integral"),
    ({"cursorTimeoutMillis": {}}, "value to integral"),
    ({"cursorTimeoutMillis": float("nan")}, "NaN/Inf to integral"),
    ({"flowControlFudgeFactor": "1"}, "value to correct"),
    ({"flowControlFudgeFactor": True}, "value to correct"),
])
def test_numbers_are_numbers(admin, parameter, kind):
    (name,) = parameter
    assert refused(admin, **parameter) == (2, f"Failed validating {name}: Unable to coerce {kind} type")


def test_all_are_shown_with_when_they_may_be_set(admin):
    every = admin.command("getParameter", {"showDetails": True, "allParameters": True})
    assert every["journalCommitInterval"] == {"value": 100, "settableAtRuntime": True, "settableAtStartup": True}
    assert every["maxBSONDepth"]["value"] == 200
    assert not every["authSchemaVersion"]["settableAtStartup"]
    assert every["tlsMode"]["settableAtRuntime"] and not every["tlsMode"]["settableAtStartup"]
    assert len(every) > 250


def test_what_is_set_is_shown_and_answers_what_it_was(admin):
    assert admin.command("setParameter", 1, maxLogSizeKB=20)["was"] == 10
    assert admin.command("setParameter", 1, maxLogSizeKB=10)["was"] == 20
    assert refused(admin, readHedgingMode="x") == (2, "Unrecognized readHedgingMode 'x'")
    assert refused(admin, replWriterThreadCount=3)[1] == "not allowed to change [replWriterThreadCount] at runtime"


DEFAULT = 100 << 20


@pytest.mark.parametrize("name, value, default, pipeline, code", [
    ("internalQueryFacetMaxOutputDocSizeBytes", 1000, DEFAULT, [{"$limit": 3}, {"$facet": {"a": [{"$match": {}}]}}], 4031700),
    ("internalDocumentSourceDensifyMaxMemoryBytes", 100, DEFAULT,
     [{"$densify": {"field": "v", "partitionByFields": ["s", "_id"], "range": {"bounds": [0, 20], "step": 1}}}], 6007200),
    ("internalQueryMaxAllowedDensifyDocs", 10, 500_000,
     [{"$densify": {"field": "v", "range": {"bounds": "full", "step": 1}}}], 5897900),
    ("internalLookupStageIntermediateDocumentMaxSizeBytes", 16_793_600, DEFAULT,
     [{"$limit": 1}, {"$lookup": {"from": "parameters", "pipeline": [], "as": "all"}},
      {"$project": {"n": {"$size": "$all"}}}], 4568),
])
def test_memory_of_stages(own, admin, name, value, default, pipeline, code):
    c = admin.client.test.parameters
    c.drop()
    c.insert_many([{"_id": i, "v": i * 10, "s": "x" * 100_000} for i in range(200)])
    assert list(c.aggregate(pipeline))
    admin.command("setParameter", 1, **{name: value})
    try:
        with pytest.raises(OperationFailure) as failure:
            list(c.aggregate(pipeline))
        assert failure.value.code == code
    finally:
        admin.command("setParameter", 1, **{name: default})


def test_mechanisms_that_are_not_taken():
    with server.Server("--setParameter", "authenticationMechanisms=SCRAM-SHA-256") as own, MongoClient(own.uri) as client:
        admin = client.admin
        assert admin.command("getParameter", 1, authenticationMechanisms=1)["authenticationMechanisms"] == ["SCRAM-SHA-256"]
        admin.command("createUser", "u", pwd="p", roles=["root"])
        assert admin.command("usersInfo", "u")["users"][0]["mechanisms"] == ["SCRAM-SHA-256"]
        with pytest.raises(OperationFailure, match="SCRAM-SHA-1 not supported in authMechanisms"):
            admin.command("createUser", "v", pwd="p", roles=[], mechanisms=["SCRAM-SHA-1"])
        assert admin.command("hello", saslSupportedMechs="admin.u")["saslSupportedMechs"] == ["SCRAM-SHA-256"]
        address = own.uri.replace("mongodb://", "mongodb://u:p@")
        with MongoClient(address) as one:
            one.admin.command("ping")
        with MongoClient(address, authMechanism="SCRAM-SHA-1") as one, pytest.raises(OperationFailure) as refusal:
            one.admin.command("ping")
        assert refusal.value.code == 334


@pytest.mark.skipif(server.is_mongod(), reason="Marula says what a setting does not do")
def test_a_setting_without_effect_is_told_at_the_start():
    with server.Server("--setParameter", "replWriterThreadCount=4") as own:
        with MongoClient(own.uri) as client:
            assert client.admin.command("getParameter", 1, replWriterThreadCount=1)["replWriterThreadCount"] == 4
        with open(own.log, errors="replace") as log:
            assert any("replWriterThreadCount" in line and '"s":"W"' in line for line in log)


@pytest.mark.skipif(server.is_mongod(), reason="in Marula's words")
@pytest.mark.parametrize("setting, text", [
    ("authenticationMechanisms=GSSAPI", "there is no authentication mechanism 'GSSAPI' here"),
    ("ttlMonitorSleepSecs=0", "0 is not greater than 0"),
    ("noSuchParameter=1", "is not known to this server"),
    ("ttlMonitorEnabled=perhaps", "Unable to coerce value to correct type"),
])
def test_a_wrong_setting_stops_the_start(setting, text):
    with pytest.raises(Exception, match=text):
        with server.Server("--setParameter", setting):
            pass


@pytest.mark.parametrize("verbosity, text", [
    ({"nothing": {"verbosity": 1}}, "Invalid component name default.nothing"),
    ({"query": {"nothing": {"verbosity": 1}}}, "Invalid component name query.nothing"),
    ({"storage": {"journal": {"verbosity": "x"}}}, "Expected storage.journal.verbosity to be a number, but found string"),
])
def test_a_wrong_log_component_changes_nothing(admin, verbosity, text):
    before = admin.command("getParameter", 1, logComponentVerbosity=1)["logComponentVerbosity"]
    with pytest.raises(OperationFailure) as failed:
        admin.command("setParameter", 1, logComponentVerbosity=verbosity)
    assert (failed.value.code, failed.value.details["errmsg"]) == (2, text)
    assert admin.command("getParameter", 1, logComponentVerbosity=1)["logComponentVerbosity"] == before


def test_a_log_component_within_another_is_set(admin):
    levels = lambda: admin.command("getParameter", 1, logComponentVerbosity=1)["logComponentVerbosity"]["storage"]
    admin.command("setParameter", 1, logComponentVerbosity={"storage": {"journal": {"verbosity": 1}}})
    assert (levels()["verbosity"], levels()["journal"]["verbosity"]) == (-1, 1)
    admin.command("setParameter", 1, logComponentVerbosity={"storage": {"journal": {"verbosity": -1}}})
    assert levels()["journal"]["verbosity"] == -1


def test_explain_shows_parameters_as_numbers_of_the_smallest_type(admin):
    shown = lambda: admin.command("explain", {"find": "c"})["serverParameters"]
    assert {type(value) for value in shown().values()} == {int}, "each fits an int, as on mongod 6.0"
    limit = "internalQueryFacetMaxOutputDocSizeBytes"
    try:
        admin.command("setParameter", 1, **{limit: 2**31})
        assert isinstance(shown()[limit], Int64)
    finally:
        admin.command("setParameter", 1, **{limit: 100 << 20})
