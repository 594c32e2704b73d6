"""A server with JavaScript disabled."""
import pymongo
import pytest
import server
from pymongo.errors import OperationFailure

CODE = "function() { return 1; }"
FUNCTION = {"$function": {"body": CODE, "args": [], "lang": "js"}}
ACCUMULATOR = {"$accumulator": {"init": CODE, "accumulate": CODE, "accumulateArgs": [], "merge": CODE, "lang": "js"}}


@pytest.fixture(scope="module", params=["option", "configuration"])
def db(request, tmp_path_factory):
    if request.param == "option":
        args = ["--noscripting"]
    else:
        config = tmp_path_factory.mktemp("conf") / "mongod.conf"
        config.write_text("security:\n  javascriptEnabled: false\n")
        args = ["--config", str(config)]
    with server.Server(*args) as own, pymongo.MongoClient(own.uri) as client:
        client.off.c.insert_one({"_id": 1})
        yield client.off


def refused(db, code, command):
    with pytest.raises(OperationFailure) as error:
        db.command(command)
    assert error.value.code == code, error.value.details


@pytest.mark.parametrize("command", [
    {"find": "c", "filter": {"$where": "1"}},
    {"find": "nope", "filter": {"$or": [{"a": 5}, {"$where": "1"}]}},
    {"count": "c", "query": {"$where": "1"}},
    {"findAndModify": "c", "query": {"$where": "1"}, "remove": True},
    {"explain": {"find": "c", "filter": {"$where": "1"}}},
])
def test_where_is_refused_as_it_is_read(db, command):
    refused(db, 6108304, command)


def test_statements_fail_by_themselves(db):
    for command in ({"update": "c", "updates": [{"q": {"$where": "1"}, "u": {"$set": {"a": 1}}}]},
                    {"delete": "c", "deletes": [{"q": {"$where": "1"}, "limit": 1}]}):
        reply = db.command(command)
        assert reply["n"] == 0 and reply["writeErrors"][0]["code"] == 6108304


@pytest.mark.parametrize("command", [
    {"find": "c", "filter": {"$expr": FUNCTION}},
    {"find": "c", "projection": {"a": FUNCTION}},
    {"aggregate": "c", "pipeline": [{"$set": {"a": FUNCTION}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$group": {"_id": 1, "a": ACCUMULATOR}}], "cursor": {}},
    {"mapReduce": "c", "map": CODE, "reduce": CODE, "out": {"inline": 1}},
])
def test_code_is_refused_when_it_would_run(db, command):
    refused(db, 31264, command)
    # Where there is no document it would not.
    name = next(iter(command))
    assert db.command({**command, name: "nope"})["ok"] == 1


def test_the_server_says_so(db):
    parsed = db.client.admin.command("getCmdLineOpts")["parsed"]
    assert parsed["security"]["javascriptEnabled"] is False
    assert "js" not in db.client.admin.command("features")


def test_javascript_may_be_allowed_by_name(tmp_path):
    config = tmp_path / "mongod.conf"
    config.write_text("security:\n  javascriptEnabled: true\n")
    with server.Server("--config", str(config)) as own, pymongo.MongoClient(own.uri) as client:
        client.on.c.insert_one({"_id": 1})
        assert client.on.c.count_documents({}) == len(list(client.on.c.find({"$where": "true"}))) == 1
        assert client.server_info()["javascriptEngine"] != "none"
        assert "js" in client.admin.command("features")
