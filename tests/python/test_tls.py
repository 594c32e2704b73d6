"""TLS: who is let in and who is not, both kinds of connections on one port, certificates as users, large messages."""
import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess

import bson
import pymongo
import pytest
import server
from pymongo.errors import OperationFailure, PyMongoError

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made with the openssl command")
own_ways = pytest.mark.skipif(server.is_mongod(), reason="another server has other words for it")
SUBJECT = "CN=anna,OU=clients,O=Ma\\, rula,C=DE"


class Files:
    """An authority and what it has signed, in a folder of the test session."""

    def __init__(self, folder):
        self.folder = folder
        self.authority("ca")
        self.authority("other")
        self.signed("server", "/O=Marula/CN=localhost")
        self.signed("server2", "/O=Marula/CN=second")
        self.signed("anna", "/C=DE/O=Ma, rula/OU=clients/CN=anna")
        self.signed("gone", "/CN=gone")
        self.signed("stranger", "/CN=stranger", by="other")
        self.ssl("pkcs8", "-topk8", "-in", "server.key", "-passout", "pass:geheim", "-out", "enc.key")
        self.join("enc.pem", "server.crt", "enc.key")
        self.ssl("ec", "-in", "server.key", "-aes256", "-passout", "pass:geheim", "-out", "older.key")
        self.join("older.pem", "server.crt", "older.key")
        (folder / "index.txt").write_text("")
        (folder / "ca.conf").write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ndefault_md=sha256\n"
                                        "default_crl_days=30\ncrlnumber=crlnumber\n")
        (folder / "crlnumber").write_text("01\n")
        by_ca = ("-config", "ca.conf", "-keyfile", "ca.key", "-cert", "ca.pem")
        self.ssl("ca", *by_ca, "-revoke", "gone.crt")
        self.ssl("ca", *by_ca, "-gencrl", "-out", "crl.pem")

    def ssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def path(self, name):
        return str(self.folder / name)

    def join(self, name, *parts):
        (self.folder / name).write_text("".join((self.folder / part).read_text() for part in parts))

    def key(self, name, subject, *words):
        self.ssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key",
                 "-subj", subject, *words)

    def authority(self, name):
        self.key(name, "/CN=" + name, "-x509", "-days", "30", "-out", name + ".pem",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def signed(self, name, subject, by="ca"):
        self.key(name, subject, "-out", name + ".csr")
        (self.folder / "extensions").write_text("basicConstraints=CA:FALSE\n"
                                                "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.ssl("x509", "-req", "-in", name + ".csr", "-CA", by + ".pem", "-CAkey", by + ".key", "-CAcreateserial",
                 "-days", "30", "-extfile", "extensions", "-out", name + ".crt")
        self.join(name + ".pem", name + ".crt", name + ".key")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


@contextlib.contextmanager
def serving(files, mode, *words, key="server.pem"):
    with server.Server("--tlsMode", mode, "--tlsCertificateKeyFile", files.path(key), "--tlsCAFile",
                       files.path("ca.pem"), *words) as running:
        yield running


@contextlib.contextmanager
def client(files, running, key=None, ca="ca.pem", **options):
    options = {"tls": True, "serverSelectionTimeoutMS": 10_000, **options}
    if options["tls"]:
        options["tlsCAFile"] = files.path(ca)
        if key:
            options["tlsCertificateKeyFile"] = files.path(key)
    made = pymongo.MongoClient("127.0.0.1", running.port, directConnection=True, **options)
    with made:
        yield made


def is_refused(files, running, **options):
    with client(files, running, serverSelectionTimeoutMS=700, **options) as other:
        with pytest.raises(PyMongoError):
            other.admin.command("ping")
    return True


OPTIONAL = "--tlsAllowConnectionsWithoutCertificates"


def test_who_is_let_in(files):
    with serving(files, "requireTLS", "--tlsCRLFile", files.path("crl.pem")) as running:
        with client(files, running, "anna.pem") as anna:
            assert anna.admin.command("ping")["ok"] == 1
            counted = anna.admin.command("serverStatus")["transportSecurity"]
            assert counted["1.3"] + counted["1.2"] >= 1
            assert anna.admin.command("getParameter", 1, tlsMode=1)["tlsMode"] == "requireTLS"
        assert is_refused(files, running)
        assert is_refused(files, running, key="gone.pem")
        assert is_refused(files, running, key="stranger.pem")
        assert is_refused(files, running, key="anna.pem", ca="other.pem")
        assert is_refused(files, running, tls=False)


@pytest.mark.parametrize("mode", ["allowTLS", "preferTLS"])
def test_both_kinds_on_one_port(files, mode):
    with serving(files, mode, OPTIONAL) as running:
        with client(files, running) as one, client(files, running, tls=False) as other:
            one.t.c.insert_one({"_id": 1})
            assert other.t.c.find_one() == {"_id": 1}


def test_invalid_certificates_can_be_allowed(files):
    with serving(files, "requireTLS", "--tlsAllowInvalidCertificates") as running:
        with client(files, running, "stranger.pem") as stranger:
            assert stranger.admin.command("ping")["ok"] == 1


def test_an_encrypted_key_whose_password_is_not_told(files):
    with serving(files, "allowTLS", OPTIONAL, "--tlsCertificateKeyFilePassword", "geheim", key="enc.pem") as running:
        with client(files, running) as one:
            told = one.admin.command("getCmdLineOpts")
            assert "geheim" not in str(told)
            assert told["parsed"]["net"]["tls"]["certificateKeyFilePassword"] == "<password>"
        assert "geheim" not in running.tail(10**6)


# The older form of OpenSSL, as `openssl genrsa -aes256` wrote it before version 3.
@pytest.mark.parametrize("cipher", ["aes128", "aes192", "aes256", "des3"])
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_key_in_the_older_encrypted_form(files, kind, cipher):
    key = "again.key"
    if kind == "ec":
        files.ssl("ec", "-in", "server.key", f"-{cipher}", "-passout", "pass:geheim", "-out", key)
        files.join("again.pem", "server.crt", key)
    else:
        files.ssl("genrsa", "-traditional", f"-{cipher}", "-passout", "pass:geheim", "-out", key, "2048")
        files.ssl("req", "-x509", "-key", key, "-passin", "pass:geheim", "-subj", "/CN=localhost", "-out", "again.crt")
        files.join("again.pem", "again.crt", key)
    assert "Proc-Type: 4,ENCRYPTED" in (files.folder / "again.pem").read_text()
    own = {} if kind == "ec" else {"tlsAllowInvalidCertificates": True}
    with serving(files, "requireTLS", OPTIONAL, "--tlsCertificateKeyFilePassword", "geheim", key="again.pem") as running:
        with client(files, running, **own) as one:
            assert one.admin.command("ping")["ok"] == 1


def test_the_mode_goes_one_way(files):
    with serving(files, "allowTLS", OPTIONAL) as running:
        with client(files, running) as one:
            def change(mode):
                return one.admin.command("setParameter", 1, tlsMode=mode)
            for mode in ("disabled", "allowTLS", "requireTLS", "nope"):
                with pytest.raises(OperationFailure) as raised:
                    change(mode)
                assert raised.value.code == 2
            assert change("preferTLS")["was"] == "allowTLS"
            assert change("requireTLS")["was"] == "preferTLS"
            assert is_refused(files, running, tls=False)
            assert one.admin.command("ping")["ok"] == 1


def shown_subject(files, running):
    trusting = ssl.create_default_context(cafile=files.path("ca.pem"))
    with socket.create_connection(("127.0.0.1", running.port)) as plain:
        with trusting.wrap_socket(plain, server_hostname="localhost") as made:
            return dict(part[0] for part in made.getpeercert()["subject"])["commonName"]


def test_certificates_are_rotated_under_open_connections(files):
    shutil.copy(files.path("server.pem"), files.path("used.pem"))
    with serving(files, "requireTLS", OPTIONAL, key="used.pem") as running:
        with client(files, running, maxPoolSize=1) as one:
            before = one.admin.command("hello")["connectionId"]
            assert shown_subject(files, running) == "localhost"
            shutil.copy(files.path("server2.pem"), files.path("used.pem"))
            one.admin.command("rotateCertificates")
            assert shown_subject(files, running) == "second"
            (files.folder / "used.pem").write_text("nonsense")
            with pytest.raises(OperationFailure):
                one.admin.command("rotateCertificates")
            assert shown_subject(files, running) == "second"
            assert one.admin.command("hello")["connectionId"] == before


def test_a_certificate_is_a_user(files):
    with serving(files, "allowTLS", OPTIONAL) as running:
        with client(files, running) as one, client(files, running, "anna.pem", maxPoolSize=1) as anna:
            def authenticate(of, db="$external", **fields):
                return of[db].command("authenticate", mechanism="MONGODB-X509", **fields)

            def fails(code, words, of, **fields):
                with pytest.raises(OperationFailure) as raised:
                    authenticate(of, **fields)
                assert (raised.value.code, raised.value.details["errmsg"]) == (code, words)
            fails(11, 'Could not find user "%s" for db "$external"' % SUBJECT, anna)
            fails(18, "No verified subject name available from client", one)
            fails(18, "There is no x.509 client certificate matching the user.", anna, user="CN=otto")
            fails(17, "X.509 authentication must always use the $external database.", anna, db="admin")
            one["$external"].command("createUser", SUBJECT, roles=[{"role": "root", "db": "admin"}])
            said = authenticate(anna)
            assert said["dbname"] == "$external" and said["user"] == SUBJECT and said["ok"] == 1
            said = anna.admin.command("hello", speculativeAuthenticate={
                "authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"})
            assert said["speculativeAuthenticate"] == {"dbname": "$external", "user": SUBJECT}
            who = anna.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
            assert who == [{"user": SUBJECT, "db": "$external"}]
        with client(files, running, "anna.pem", authMechanism="MONGODB-X509") as anna:
            assert anna.t.c.insert_one({}).acknowledged


def test_large_documents_both_ways(files):
    with serving(files, "requireTLS", OPTIONAL) as running:
        with client(files, running) as one:
            for length in (1, 16_384, 65_536, 1_000_003, 15_000_000):
                document = {"_id": length, "data": bytes(range(256)) * (length // 256 + 1)}
                one.t.c.insert_one(document)
                assert one.t.c.find_one({"_id": length}) == document
            assert sum(len(found["data"]) for found in one.t.c.find()) > 16_000_000


def test_a_slow_reader_gets_all(files):
    trusting = ssl.create_default_context(cafile=files.path("ca.pem"))
    with serving(files, "requireTLS", OPTIONAL) as running, client(files, running) as one:
        one.t.c.insert_one({"_id": 1, "data": b"x" * 8_000_000})
        with socket.create_connection(("127.0.0.1", running.port), timeout=60) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            with trusting.wrap_socket(plain, server_hostname="localhost") as slow:
                body = struct.pack("<IB", 0, 0) + bson.encode({"find": "c", "$db": "t"})
                slow.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)
                # Others are served while the reply waits to be taken.
                assert one.admin.command("ping")["ok"] == 1
                received = bytearray(slow.recv(4))
                length = struct.unpack("<i", received)[0]
                while len(received) < length:
                    more = slow.recv(length - len(received))
                    assert more
                    received += more
                assert bson.decode(bytes(received[21:]))["cursor"]["firstBatch"][0]["data"] == b"x" * 8_000_000


@pytest.mark.embedded
def test_idle_and_half_open_connections_hold_nobody_up(files):
    trusting = ssl.create_default_context(cafile=files.path("ca.pem"))
    with serving(files, "preferTLS", OPTIONAL) as running, contextlib.ExitStack() as stack:
        def connected():
            return stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
        with client(files, running) as one:
            one.t.c.insert_one({"_id": -1})
            threads = len(os.listdir(f"/proc/{running.process.pid}/task"))
            for _ in range(1000):
                stack.enter_context(trusting.wrap_socket(connected(), server_hostname="localhost"))
            for _ in range(200):
                connected().sendall(bytes([0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + b"r" * 40)
            for number in range(20):
                one.t.c.insert_one({"_id": number})
            assert one.t.c.count_documents({}) == 21
            if not server.is_mongod():
                assert len(os.listdir(f"/proc/{running.process.pid}/task")) <= threads


def test_garbage_ends_its_connection_alone(files):
    with serving(files, "requireTLS", OPTIONAL) as running, client(files, running) as one:
        one.admin.command("ping")
        for garbage in (bytes([0x16, 3, 1, 0, 200, 1]) + b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n" * 4):
            with socket.create_connection(("127.0.0.1", running.port), timeout=20) as other:
                other.sendall(garbage)
                with contextlib.suppress(ConnectionResetError):
                    while other.recv(1024):
                        pass
        assert one.admin.command("ping")["ok"] == 1


def test_a_version_can_be_turned_off(files):
    trusting = ssl.create_default_context(cafile=files.path("ca.pem"))
    with serving(files, "requireTLS", OPTIONAL, "--tlsDisabledProtocols", "TLS1_3") as running:
        with socket.create_connection(("127.0.0.1", running.port)) as plain:
            with trusting.wrap_socket(plain, server_hostname="localhost") as made:
                assert made.version() == "TLSv1.2"


def test_mongod_conf(files, tmp_path):
    for section, mode, key in (("tls", "requireTLS", "certificateKeyFile"), ("ssl", "requireSSL", "PEMKeyFile")):
        conf = tmp_path / "mongod.conf"
        conf.write_text("net:\n  %s:\n    mode: %s\n    %s: %s\n    CAFile: %s\n"
                        "    allowConnectionsWithoutCertificates: true\n"
                        % (section, mode, key, files.path("server.pem"), files.path("ca.pem")))
        with server.Server("--config", str(conf)) as running, client(files, running) as one:
            parsed = one.admin.command("getCmdLineOpts")["parsed"]["net"]["tls"]
            assert (parsed["mode"], parsed["CAFile"]) == ("requireTLS", files.path("ca.pem"))


@own_ways
@pytest.mark.parametrize("words, said", [
    (["--tlsMode", "nope"], "unsupported value for net.tls.mode nope"),
    (["--tlsMode", "requireTLS"], "without specifying a chain of trust"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem"], "need tlsCertificateKeyFile"),
    (["--tlsCAFile", "ca.pem"], "need to enable TLS"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "nope", "--tlsCertificateKeyFile", "server.pem"], "cannot read"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem", "--tlsCertificateKeyFile", "ca.pem"], "no private key"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem", "--tlsCertificateKeyFile", "enc.pem",
      "--tlsCertificateKeyFilePassword", "wrong"], "cannot be decrypted"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem", "--tlsCertificateKeyFile", "older.pem",
      "--tlsCertificateKeyFilePassword", "wrong"], "cannot be decrypted"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem", "--tlsCertificateKeyFile", "older.pem"], "no password is given"),
    (["--tlsMode", "requireTLS", "--tlsCAFile", "ca.pem", "--tlsCertificateKeyFile", "server.pem",
      "--tlsDisabledProtocols", "TLS9"], "Unrecognized disabledProtocols 'TLS9'")])
def test_mistakes_stop_the_start(files, tmp_path, words, said):
    done = subprocess.run([*server.serve_command(), "--dbpath", str(tmp_path), "--port", "0", *words], timeout=60,
                          cwd=files.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.embedded
@own_ways
def test_backups_are_asked_for_over_tls(files, tmp_path):
    """By a user with a password and by one with a certificate; not of a server that another authority vouches for."""
    program = server.serve_command()[0]
    target = str(tmp_path / "backups")

    def create(*words, password="geheim"):
        done = subprocess.run([program, "backup", "create", target, *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "MARULA_PASSWORD": password})
        return done.returncode, done.stdout + done.stderr

    with serving(files, "requireTLS", OPTIONAL, "--auth") as running:
        with client(files, running) as local:
            local.admin.command("createUser", "root", pwd="geheim", roles=["root"])
        with client(files, running, username="root", password="geheim") as root:
            root["$external"].command("createUser", SUBJECT, roles=[{"role": "backup", "db": "admin"}])
            # Larger than a record of TLS, so that a reply comes in several.
            root.t.c.insert_many([{"_id": n, "x": "y" * 1000} for n in range(2000)])
        address = "localhost:%d" % running.port
        asked, ca, anna = ["--host", address], ["--tlsCAFile", files.path("ca.pem")], files.path("anna.pem")
        for words in (
            [*asked, "--tls", *ca, "--username", "root"],
            ["--host", "127.0.0.1:%d" % running.port, *ca, "--username", "root"],
            ["--uri", "mongodb://root:geheim@%s/?tls=true&tlsCAFile=%s" % (address, files.path("ca.pem"))],
            ["--uri", "mongodb://%s/?authMechanism=MONGODB-X509&tlsCAFile=%s&tlsCertificateKeyFile=%s" % (
                address, files.path("ca.pem"), anna)],
        ):
            code, said = create(*words)
            assert code == 0 and "sent" in said, said
        for words, part in [
            ([*asked, "--username", "root"], "does not answer"),
            ([*asked, "--tlsCAFile", files.path("other.pem"), "--username", "root"], "certificate"),
            ([*asked, "--tls", "--username", "root"], "certificate"),
            ([*asked, *ca], "requires authentication"),
            ([*asked, "--tlsCAFile", str(tmp_path / "none")], "cannot read"),
        ]:
            code, said = create(*words)
            assert code == 1 and part in said and len(said.strip().splitlines()) == 1, (words, said)
        code, said = create(*asked, *ca, "--username", "root", password="wrong")
        assert code == 1 and "Authentication failed" in said, said
    listed = subprocess.run([program, "backup", "list", target, "--json"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 4
