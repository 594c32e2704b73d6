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
