"""etcd servers that serve clients with a certificate, over TLS, and ask for a user."""
import json
import shutil
import subprocess
import urllib.parse

import etcd_cluster
import pymongo
import pytest
import server
# The mark, too: the engine is chosen here.
from test_distributed import pytestmark, refusal  # noqa: F401
from test_tls import Files

PASSWORD = "p@,ss/word"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("certificates are made with the openssl command")
    files = Files(tmp_path_factory.mktemp("tls"))
    # etcd takes a common name for a user, and its gateway serves no client that has one.
    files.signed("nameless", "/O=Marula")
    return files


@pytest.fixture(scope="module")
def etcd(files):
    with etcd_cluster.start(tls=files) as etcd:
        etcd.ctl("user", "add", "root:other")
        etcd.ctl("user", "add", "marula:" + PASSWORD)
        etcd.ctl("role", "add", "all")
        etcd.ctl("role", "grant-permission", "all", "readwrite", "", "--from-key")
        etcd.ctl("user", "grant-role", "marula", "all")
        etcd.ctl("user", "grant-role", "root", "root")
        etcd.ctl("auth", "enable")
        yield etcd


def options(etcd, password=PASSWORD, ca="ca.pem", key="nameless.pem"):
    user = "https://marula:%s@" % urllib.parse.quote(password, safe="")
    endpoints = ",".join(url.replace("https://", user) for url in etcd.clients)
    words = ["--storage-engine", "etcd", "--endpoints", endpoints, "--endpoints-ca-file", etcd.tls.path(ca)]
    return words + (["--endpoints-certificate-key-file", etcd.tls.path(key)] if key else [])


def test_a_user_over_tls(etcd):
    with server.Server(*options(etcd), wait=60.0) as own, pymongo.MongoClient(own.uri) as client:
        c = client.test.c
        c.create_index("n")
        c.insert_many([{"_id": n, "n": n % 7} for n in range(100)])
        assert c.count_documents({"n": 3}) == 14
        # Changed rights make the tokens void that were given before.
        etcd.ctl("--user", "root:other", "role", "add", "one more")
        c.insert_one({"_id": 100, "n": 3})
        etcd.ctl("--user", "root:other", "user", "add", "one more:secret")
        assert c.find_one({"_id": 100}) == {"_id": 100, "n": 3}
        shown = subprocess.run([server.serve_command()[0], "cluster", "status", *options(etcd), "--json"], capture_output=True,
                               text=True, timeout=60)
        assert json.loads(shown.stdout)["healthy"], shown.stdout + shown.stderr
        said = own.tail(1 << 24) + str(client.admin.command("getCmdLineOpts")) + str(client.admin.command("getLog", "global"))
        assert "marula:<password>@" in said
        assert PASSWORD not in said and urllib.parse.quote(PASSWORD, safe="") not in said


@pytest.mark.parametrize("wrong, message", [
    ({"password": "wrong"}, "authentication failed"),
    ({"ca": "other.pem"}, "invalid peer certificate"),
    ({"key": "stranger.pem"}, "etcd is not reached"),
    ({"key": None}, "etcd is not reached"),
], ids=["password", "ca", "stranger", "no certificate"])
def test_others_are_refused(etcd, tmp_path, wrong, message):
    said = refusal(*options(etcd, **wrong), dbpath=str(tmp_path))
    assert message in said, said
    assert "%2Css" not in said


def test_a_server_that_dies_is_not_missed(etcd):
    with server.Server(*options(etcd), wait=60.0) as own, pymongo.MongoClient(own.uri, retryWrites=False) as client:
        c = client.test.dies
        c.insert_many([{"_id": n} for n in range(10)])
        etcd.processes[0].kill()
        etcd.processes[0].wait()
        for n in range(10, 30):
            c.insert_one({"_id": n})
        assert c.count_documents({}) == 30
