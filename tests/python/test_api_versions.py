"""The commands by which drivers test versions of the Stable API. The replies are those of mongod 6.0, on which this
file passes too."""
import pytest
import server
from raw import Raw

STRICT = {"apiVersion": "1", "apiStrict": True}
DEPRECATION = {"apiVersion": "1", "apiDeprecationErrors": True}


@pytest.fixture(scope="module")
def raw():
    with server.Server("--setParameter", "enableTestCommands=1") as own, Raw(own.port) as raw:
        yield raw


@pytest.mark.parametrize("name", [
    "testDeprecation", "testDeprecationInVersion2", "testRemoval", "testVersion2", "testVersions1And2"])
@pytest.mark.parametrize("parameters, refused", [
    ({}, {}),
    ({"apiVersion": "1"}, {}),
    ({"apiVersion": "2"}, None),
    (STRICT, {"testVersion2": 323}),
    (DEPRECATION, {"testDeprecation": 324}),
])
def test_a_command_of_other_versions(raw, name, parameters, refused):
    reply = raw.command("admin", **{name: 1}, other=1, **parameters)
    if refused is None:
        assert reply["code"] == 322
    elif name in refused:
        assert reply["code"] == refused[name] and "command %s is" % name in reply["errmsg"]
    else:
        assert {field: reply[field] for field in reply if field.startswith("api")} == parameters and reply["ok"] == 1


def test_an_ordinary_server_has_none_of_them(client):
    assert client.admin.command("testVersion2", check=False)["code"] == 59
