"""Fail points: how drivers' tests have commands fail. The answers are those of mongod 6.0, on which this file passes too."""
import time
import uuid

import pymongo
import pytest
import server
from bson import Binary, Int64
from raw import EXHAUST_ALLOWED, Raw


@pytest.fixture(scope="module")
def own():
    with server.Server("--replSet", "rs0", "--setParameter", "enableTestCommands=1") as own:
        with pymongo.MongoClient(own.uri) as client:
            member = {"_id": 0, "host": "127.0.0.1:%d" % own.port}
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.01)
        yield own


@pytest.fixture
def raw(own):
    with Raw(own.port) as raw:
        yield raw
        for name in ("failCommand", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut", "onPrimaryTransactionalWrite"):
            raw.command("admin", configureFailPoint=name, mode="off")


def configure(raw, mode, name="failCommand", **data):
    reply = raw.command("admin", configureFailPoint=name, mode=mode, data=data)
    assert reply["ok"] == 1, reply
    return reply["count"]


def numbered(**fields):
    return {"lsid": {"id": Binary(uuid.uuid4().bytes, 4)}, "txnNumber": Int64(1), **fields}


def told(reply):
    return reply.get("code"), reply.get("errorLabels", [])


def is_closed(raw, db, **command):
    try:
        raw.command(db, **command)
    except (EOFError, OSError):
        return True
    return False


def test_there_are_none_on_an_ordinary_server(uri, client):
    with pytest.raises(pymongo.errors.OperationFailure) as error:
        client.admin.command("configureFailPoint", "failCommand", mode="off")
    assert (error.value.code, error.value.details["errmsg"]) == (59, "no such command: 'configureFailPoint'")
    assert "configureFailPoint" not in client.admin.command("listCommands")["commands"]


@pytest.mark.parametrize("fields, code, message", [
    ({}, 20, "When setting a failpoint, you must supply a 'mode'"),
    ({"mode": "x"}, 2, "unknown mode: x"),
    ({"mode": 5}, 14, "'mode' must be a string or JSON object"),
    ({"mode": {}}, 2, "'mode' must be one of 'off', 'alwaysOn', '{times:n}', '{skip:n}' or '{activationProbability:p}'"),
    ({"mode": {"times": -1}}, 2, "'times' option to 'mode' must be positive"),
    ({"mode": {"times": 1 << 40}}, 2, "'times' option to 'mode' is too large"),
    ({"mode": {"skip": "a"}}, 14, 'Expected field "skip" to have numeric type, but found string'),
    ({"mode": {"times": 1.5}}, 2,
     'Expected field "times" to have a value exactly representable as a 64-bit integer, but found times: 1.5'),
    ({"mode": {"activationProbability": 2}}, 2, "activationProbability must be between 0.0 and 1.0; found 2"),
    ({"mode": {"activationProbability": "x"}}, 14,
     "the 'activationProbability' option to 'mode' must be a double between 0 and 1"),
    ({"mode": "off", "data": 5}, 14, "the 'data' option must be a JSON object"),
])
def test_what_cannot_be_configured(raw, fields, code, message):
    reply = raw.command("admin", configureFailPoint="failCommand", **fields)
    assert (reply["code"], reply["errmsg"]) == (code, message)


def test_only_what_there_is_and_in_admin(raw):
    reply = raw.command("admin", configureFailPoint="nope", mode="off")
    assert (reply["code"], reply["codeName"], reply["errmsg"]) == (266, "FailPointSetFailed", "nope not found")
    assert raw.command("test", configureFailPoint="failCommand", mode="off")["code"] == 13


def test_modes(raw):
    failing = {"failCommands": ["ping"], "errorCode": 6}
    ping = lambda: raw.command("admin", ping=1)["ok"]
    before = configure(raw, {"times": 2}, **failing)
    assert [ping() for _ in range(3)] == [0, 0, 1]
    shown = raw.command("admin", getParameter=1, **{"failpoint.failCommand": 1})["failpoint.failCommand"]
    assert shown == {"mode": 3, "data": failing, "timesEntered": before + 2}
    assert configure(raw, {"skip": 1}, **failing) == before + 2
    assert [ping() for _ in range(3)] == [1, 0, 0]
    assert configure(raw, "alwaysOn", **failing) == before + 4
    assert [ping() for _ in range(2)] == [0, 0]
    # Another command does not count.
    assert raw.command("admin", hello=1)["ok"] == 1
    assert configure(raw, {"activationProbability": 0}, **failing) == before + 6
    assert ping() == 1
    assert configure(raw, "off") == before + 6


@pytest.mark.parametrize("data, code", [
    ({"errorCode": 99999}, 99999), ({"errorCode": 6, "failLocalClients": True}, 6), ({"errorCode": 0}, None),
    ({"errorCode": "x"}, None), ({"errorCode": 6, "appName": "other"}, None), ({"errorCode": 6, "threadName": "x"}, None),
    ({"errorCode": 6, "namespace": "a.b"}, None), ({"errorLabels": ["A"]}, None), ({}, None),
    ({"blockConnection": True}, 72), ({"blockConnection": True, "blockTimeMS": -1}, 72),
    ({"blockConnection": "x", "blockTimeMS": 1}, None), ({"closeConnection": 1}, None),
])
def test_what_fails_a_command(raw, data, code):
    configure(raw, "alwaysOn", failCommands=["ping"], **data)
    reply = raw.command("admin", ping=1)
    assert reply.get("code") == code
    if code not in (None, 72):
        assert reply["errmsg"] == "Failing command via 'failCommand' failpoint"


def test_by_namespace_and_before_the_fields_are_read(raw):
    configure(raw, "alwaysOn", failCommands=["find"], errorCode=6, namespace="fp.c")
    assert raw.command("fp", find="other")["ok"] == 1
    assert raw.command("fp", find="c")["code"] == 6


@pytest.mark.parametrize("code, write, statement, end", [
    (6, True, True, True), (11602, True, True, True), (91, True, True, True), (262, True, True, True),
    (358, True, False, True), (112, False, True, False), (251, False, True, False), (24, False, True, False),
    (246, False, True, False), (63, False, True, False), (150, False, True, False), (50, False, False, False),
    (64, False, False, False), (11601, False, False, False),
])
def test_labels(raw, code, write, statement, end):
    label = lambda is_told, name: [name] if is_told else []
    configure(raw, {"times": 1}, failCommands=["insert"], errorCode=code)
    assert told(raw.command("fp", insert="c", documents=[{}], **numbered())) == (code, label(write, "RetryableWriteError"))
    configure(raw, {"times": 1}, failCommands=["find"], errorCode=code)
    begins = numbered(startTransaction=True, autocommit=False)
    assert told(raw.command("fp", find="c", **begins)) == (code, label(statement, "TransientTransactionError"))
    configure(raw, {"times": 1}, failCommands=["abortTransaction"], errorCode=code)
    expected = label(end, "RetryableWriteError") or label(statement, "TransientTransactionError")
    assert told(raw.command("admin", abortTransaction=1, **numbered(autocommit=False))) == (code, expected)
    configure(raw, {"times": 1}, failCommands=["find"], errorCode=code, errorLabels=["A", "B"])
    assert told(raw.command("fp", find="c")) == (code, ["A", "B"])


def test_the_topology_is_told_with_errors_about_who_is_primary(raw):
    for code, is_told in [(189, True), (10107, True), (11602, True), (13435, True), (13436, True), (91, False), (6, False)]:
        configure(raw, {"times": 1}, failCommands=["ping"], errorCode=code)
        assert ("topologyVersion" in raw.command("admin", ping=1)) == is_told, code


def test_a_failed_write_concern(raw):
    error = {"code": 91, "errmsg": "x", "errInfo": {"a": 1}}
    configure(raw, "alwaysOn", failCommands=["insert", "ping", "commitTransaction"], writeConcernError=error)
    assert "writeConcernError" not in raw.command("admin", ping=1)
    reply = raw.command("fp", insert="c", documents=[{}])
    assert (reply["n"], reply["writeConcernError"], reply.get("errorLabels")) == (1, error, None)
    reply = raw.command("fp", insert="c", documents=[{}], **numbered())
    assert (reply["writeConcernError"], reply["errorLabels"]) == (error, ["RetryableWriteError"])
    inside = numbered(autocommit=False)
    assert "writeConcernError" not in raw.command("fp", find="c", startTransaction=True, **inside)
    reply = raw.command("admin", commitTransaction=1, **inside)
    assert (reply["ok"], reply["writeConcernError"], reply["errorLabels"]) == (1, error, ["RetryableWriteError"])


def test_a_transaction_outlives_a_commit_that_was_made_to_fail(raw):
    inside = numbered(autocommit=False)
    raw.command("fp", create="t")
    assert raw.command("fp", insert="t", documents=[{"_id": inside["lsid"]["id"]}], startTransaction=True, **inside)["ok"] == 1
    configure(raw, {"times": 1}, failCommands=["commitTransaction"], errorCode=112)
    assert told(raw.command("admin", commitTransaction=1, **inside)) == (112, ["TransientTransactionError"])
    assert raw.command("admin", commitTransaction=1, **inside)["ok"] == 1
    assert raw.command("fp", find="t", filter={"_id": inside["lsid"]["id"]})["cursor"]["firstBatch"]


def test_a_command_is_held_up(raw):
    def seconds(**command):
        began = time.monotonic()
        return raw.command("fp", **command), time.monotonic() - began

    configure(raw, {"times": 1}, failCommands=["find"], blockConnection=True, blockTimeMS=200)
    reply, spent = seconds(find="c", limit=1)
    assert reply["ok"] == 1 and spent >= 0.2
    configure(raw, {"times": 1}, failCommands=["find"], blockConnection=True, blockTimeMS=200, errorCode=6)
    reply, spent = seconds(find="c", maxTimeMS=50)
    assert reply["code"] == 6 and spent >= 0.2
    configure(raw, {"times": 1}, failCommands=["find"], blockConnection=True, blockTimeMS=200)
    reply, spent = seconds(find="c", maxTimeMS=50)
    assert reply["code"] == 50 and spent >= 0.2


def test_others_go_on_while_many_are_held_up(own, raw):
    """A delayed request holds no thread."""
    configure(raw, {"times": 300}, failCommands=["find"], blockConnection=True, blockTimeMS=1500)
    waiting = [Raw(own.port) for _ in range(300)]
    for one in waiting:
        one.send({"find": "c", "limit": 1, "$db": "fp"})
    began = time.monotonic()
    assert raw.command("fp", count="c")["ok"] == 1
    assert time.monotonic() - began < 1.4
    for one in waiting:
        assert one.reply()["ok"] == 1
        one.socket.close()


def test_the_connection_is_closed(own, raw):
    configure(raw, {"times": 1}, failCommands=["insert"], closeConnection=True, errorCode=6)
    with Raw(own.port) as other:
        assert is_closed(other, "fp", insert="closed", documents=[{"_id": 1}])
    assert raw.command("fp", count="closed")["n"] == 0


def stream(own, metadata):
    """A connection that receives the server's state again and again, as those of drivers' monitors."""
    monitor = Raw(own.port)
    version = monitor.command("admin", hello=1, client=metadata)["topologyVersion"]
    waits = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 100, "$db": "admin"}
    monitor.send(waits, EXHAUST_ALLOWED)
    assert monitor.reply()["ok"] == 1
    return monitor


def metadata(name):
    return {"application": {"name": name}, "driver": {"name": "test", "version": "1"}, "os": {"type": "Linux"}}


TWICE = (186, "The client metadata document may only be sent in the first hello")
FAILED = (1234, "Failing command via 'failCommand' failpoint")
DONE = (None, None)


@pytest.mark.parametrize("hello", ["hello", "isMaster", "ismaster"])
def test_an_application_is_known_from_its_first_hello_on(own, raw, hello):
    def answer(connection, **fields):
        reply = connection.command("admin", **{hello: 1}, **fields)
        return reply.get("code"), reply.get("errmsg")

    fails = {"failCommands": ["hello", "isMaster"], "errorCode": 1234, "appName": "one"}
    configure(raw, "alwaysOn", **fails)
    with Raw(own.port) as one, Raw(own.port) as two, Raw(own.port) as three:
        # Its metadata stay, although the hello failed; others can replace them until one succeeds.
        assert answer(one, client=metadata("one")) == FAILED
        assert answer(one) == FAILED
        assert answer(one, client=metadata("one")) == FAILED
        assert answer(one, client=metadata("two")) == DONE
        assert answer(one, client=metadata("one")) == TWICE
        assert answer(two, client=metadata("two")) == DONE
        assert two.command("admin", ping=1)["ok"] == 1
        assert three.command("admin", ping=1)["ok"] == 1
        assert answer(three, client=metadata("one")) == FAILED
    with Raw(own.port) as one:
        configure(raw, "off")
        assert answer(one, client=metadata("one")) == DONE
        configure(raw, "alwaysOn", **fails)
        assert (answer(one, client=metadata("one")), answer(one, client=5), answer(one)) == (TWICE, TWICE, FAILED)
    configure(raw, "alwaysOn", failCommands=["hello", "isMaster"], closeConnection=True, appName="one")
    with Raw(own.port) as one:
        assert is_closed(one, "admin", **{hello: 1}, client=metadata("one"))
    configure(raw, "alwaysOn", failCommands=["ping"], errorCode=1234, appName="one")
    with Raw(own.port) as one:
        assert answer(one, client=metadata("one")) == DONE
        assert one.command("admin", ping=1)["code"] == 1234


@pytest.mark.parametrize("wrong, code", [
    (5, 14), ({"application": 5}, 14), ({"application": {"name": "one"}}, 183), ({**metadata("one"), "os": {}}, 183),
])
def test_wrong_metadata_come_before_a_fail_point(own, raw, wrong, code):
    configure(raw, "alwaysOn", failCommands=["hello"], errorCode=1234)
    with Raw(own.port) as client:
        assert client.command("admin", hello=1, client=wrong)["code"] == code
        assert client.command("admin", hello=1)["code"] == 1234


def test_each_reply_of_a_stream_can_fail(own, raw):
    fails = {"failCommands": ["hello"], "appName": "monitored"}
    with stream(own, metadata("monitored")) as monitor:
        configure(raw, {"times": 1}, errorCode=91, **fails)
        replies = [monitor.reply()]
        while replies[-1]["ok"] and len(replies) < 50:
            replies.append(monitor.reply())
        assert replies[-1].get("code") == 91
        # The stream is over, and the next request begins another.
        assert monitor.command("admin", hello=1)["ok"] == 1
    with stream(own, metadata("monitored")) as monitor, pytest.raises(EOFError):
        configure(raw, {"times": 1}, closeConnection=True, **fails)
        for _ in range(50):
            assert monitor.reply()["ok"] == 1
    with stream(own, metadata("monitored")) as monitor:
        configure(raw, {"times": 2}, blockConnection=True, blockTimeMS=400, **fails)
        longest, began = 0, time.monotonic()
        while time.monotonic() - began < 1.5:
            before = time.monotonic()
            assert monitor.reply()["ok"] == 1
            longest = max(longest, time.monotonic() - before)
        assert longest > 0.45


def test_a_get_more_fails_once_it_has_its_cursor(raw):
    raw.command("fp", insert="many", documents=[{} for _ in range(5)])
    cursor = raw.command("fp", find="many", batchSize=1)["cursor"]["id"]
    configure(raw, {"times": 1}, "failGetMoreAfterCursorCheckout", errorCode=6)
    more = {"getMore": cursor, "collection": "many"}
    reply = raw.command("fp", **more)
    assert (*told(reply), reply["errmsg"]) == (6, [], "Hit the 'failGetMoreAfterCursorCheckout' failpoint")
    assert raw.command("fp", **more)["code"] == 43


@pytest.mark.parametrize("code, labels", [(6, ["ResumableChangeStreamError"]), (11600, ["ResumableChangeStreamError"]),
                                          (133, ["ResumableChangeStreamError"]), (1, []), (43, []),
                                          (280, ["NonResumableChangeStreamError"])])
def test_a_change_stream_says_whether_it_can_be_gone_on_with(raw, code, labels):
    pipeline = [{"$changeStream": {}}]
    cursor = raw.command("fp", aggregate="many", pipeline=pipeline, cursor={})["cursor"]["id"]
    configure(raw, {"times": 1}, "failGetMoreAfterCursorCheckout", errorCode=code)
    assert told(raw.command("fp", getMore=cursor, collection="many", maxTimeMS=1)) == (code, labels)


def test_whatever_has_a_limit_of_time_runs_out_of_it(raw):
    configure(raw, "alwaysOn", "maxTimeAlwaysTimeOut")
    assert raw.command("fp", find="c", maxTimeMS=10_000)["code"] == 50
    assert raw.command("admin", ping=1, maxTimeMS=10_000)["code"] == 50
    assert raw.command("fp", find="c")["ok"] == 1


def test_a_cursor_with_a_limit_of_time_runs_out_of_it_in_its_next_batch(raw):
    raw.command("fp", insert="many", documents=[{}] * 5)
    limited, free = (raw.command("fp", find="many", batchSize=2, **limit)["cursor"]["id"] for limit in ({"maxTimeMS": 10_000}, {}))
    configure(raw, "alwaysOn", "maxTimeAlwaysTimeOut")
    assert raw.command("fp", getMore=free, collection="many")["ok"] == 1
    assert raw.command("fp", getMore=limited, collection="many")["code"] == 50
    configure(raw, "off", "maxTimeAlwaysTimeOut")
    assert raw.command("fp", getMore=limited, collection="many")["code"] == 43


@pytest.mark.parametrize("data, is_done", [({}, True), ({"failBeforeCommitExceptionCode": 1}, False)])
def test_the_connection_of_a_retryable_write_is_closed(own, raw, data, is_done):
    raw.command("fp", insert="w", documents=[{"_id": 1}])
    statement = {"update": "w", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], **numbered()}
    configure(raw, {"times": 1}, "onPrimaryTransactionalWrite", **data)
    assert raw.command("fp", update="w", updates=[{"q": {"_id": 1}, "u": {"$inc": {"m": 1}}}])["ok"] == 1
    with Raw(own.port) as other:
        assert is_closed(other, "fp", **statement)
    reply = raw.command("fp", **statement)
    assert reply["nModified"] == 1 and ("retriedStmtIds" in reply) == is_done
