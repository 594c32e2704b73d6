"""The first `hello` of a connection, as a client says it without a driver, beside mongod 6.0."""
import pytest
from raw import Raw

CLIENT = {"driver": {"name": "test", "version": "1"}, "os": {"type": "Linux"}}


@pytest.mark.parametrize("first, codes", [
    ({"client": CLIENT}, [None, 186]),
    ({}, [None, 186]),
    # What is misread does not count.
    ({"client": {**CLIENT, "os": {}}}, [183, None, 186]),
    ({"client": 5}, [14, None, 186]),
    ({"client": CLIENT, "compression": 5}, [14, None, 186]),
    ({"client": CLIENT, "compression": [5]}, [14, None, 186]),
    ({"compression": ["zlib", 5]}, [14, None, 186]),
    ({"client": CLIENT, "saslSupportedMechs": 5}, [14, None, 186]),
    ({"client": CLIENT, "topologyVersion": {}}, [40414, None, 186]),
    # What is read and then refused does.
    ({"client": CLIENT, "saslSupportedMechs": "nobody"}, [2, 186]),
    ({"speculativeAuthenticate": {}}, [2, 186]),
    ({"maxAwaitTimeMS": 5}, [31368, 186]),
    # In this order.
    ({"compression": [5], "saslSupportedMechs": "nobody"}, [14, None, 186]),
    ({"client": {}, "compression": [5]}, [183, None, 186]),
])
def test_metadata_come_with_the_first_hello_that_is_understood(replica, first, codes):
    with Raw(replica.port) as raw:
        assert raw.command("admin", hello=1, **first).get("code") == codes[0]
        later = [raw.command("admin", hello=1, client=CLIENT) for _ in codes[1:]]
        assert [reply.get("code") for reply in later] == codes[1:]
        if later[-1]["ok"] == 0:
            assert later[-1]["errmsg"] == "The client metadata document may only be sent in the first hello"


@pytest.mark.parametrize("command", ["hello", "isMaster", "ismaster"])
@pytest.mark.parametrize("field, value, code, place", [
    ("compression", 5, 14, "compression"),
    ("compression", [5], 14, "compression.0"),
    ("forShell", "x", 14, "forShell"),
    ("topologyVersion", {}, 40414, "topologyVersion.processId"),
    ("internalClient", {}, 40414, "internalClient.maxWireVersion"),
])
def test_an_error_names_the_field_of_hello(replica, command, field, value, code, place):
    with Raw(replica.port) as raw:
        reply = raw.command("admin", **{command: 1, field: value})
        assert reply["code"] == code
        assert reply["errmsg"].startswith(f"BSON field 'hello.{place}' is ")


def test_another_server_must_speak_the_newest_version(replica):
    with Raw(replica.port) as raw:
        for internal in ({"minWireVersion": 0, "maxWireVersion": 17}, {"maxWireVersion": 3}):
            reply = raw.command("admin", hello=1, internalClient=internal)
            assert (reply["minWireVersion"], reply["maxWireVersion"]) == (17, 17)
        for later in ({}, {"internalClient": None}):
            assert raw.command("admin", hello=1, **later)["minWireVersion"] == 0


def test_hello_ok_is_confirmed_to_a_client_that_says_it(replica):
    with Raw(replica.port) as raw:
        said = [{"helloOk": True}, {"helloOk": False}, {"helloOk": None}, {}]
        replies = [raw.command("admin", hello=1, **fields).get("helloOk") for fields in said]
        assert replies == [True, True, None, None]
