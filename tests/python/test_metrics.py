"""--metrics-listen: what Prometheus reads, the two probes of health, and a responder that a hostile client cannot hold up.

The names in docs/metrics.md, those in the dashboard and those that a server exposes are the same.
"""
import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import pymongo
import pytest
import server
from raw import Raw

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="mongod has no such endpoint")

SAMPLE = re.compile(r'^([a-z_]+)(\{[^}]*\})? (-?[0-9.]+|\+Inf)$')


def wait_until_ready(port):
    until = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/readyz" % port, timeout=10).close()
            return
        except (urllib.error.HTTPError, OSError):
            assert time.monotonic() < until, "the server did not become ready"
            time.sleep(0.01)


class Metered(server.Server):
    """A server whose metrics are at a port of its own."""

    def __init__(self, *args, **options):
        self.metrics_port = server.free_port()
        super().__init__("--metrics-listen", str(self.metrics_port), *args, **options)
        # Its sockets listen before its data is open.
        wait_until_ready(self.metrics_port)

    def get(self, path):
        """Status and text of a path."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.metrics_port, path), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def samples(self):
        """Every sample by name and labels."""
        status, text = self.get("/metrics")
        assert status == 200
        found = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, labels, value = SAMPLE.match(line).groups()
                found[name + (labels or "")] = float(value)
        return found


@pytest.fixture(scope="module")
def own():
    with Metered("--replSet", "rs0") as own:
        yield own


@pytest.fixture
def db(own):
    with pymongo.MongoClient(own.uri) as client:
        try:
            client.admin.command("replSetInitiate")
        except pymongo.errors.OperationFailure as error:
            assert error.code in (23, 59), error
        yield client.metrics
        client.drop_database("metrics")


def families(text):
    """The type of every family, by name; each occurs once, with its help before its type and its samples after it."""
    kinds, named = {}, None
    for line in text.splitlines():
        word = line.split(" ", 3)
        if word[:2] == ["#", "HELP"]:
            named = word[2]
            assert named not in kinds and word[3].endswith(".")
        elif word[:2] == ["#", "TYPE"]:
            assert word[2] == named
            kinds[named] = word[3]
        else:
            name = SAMPLE.match(line).group(1)
            own = kinds[named]
            assert name == named or own == "histogram" and name[len(named):] in ("_bucket", "_sum", "_count"), line
    return kinds


def work(db):
    """Something of everything that is counted."""
    db.c.insert_many([{"_id": i, "a": i % 7} for i in range(50)])
    db.c.create_index("a")
    list(db.c.find({"a": 3}).batch_size(2))
    list(db.c.find({"b": None}).sort("c"))
    db.c.update_one({"_id": 1}, {"$set": {"a": 9}})
    db.c.delete_one({"_id": 2})
    with pytest.raises(pymongo.errors.OperationFailure):
        db.command("find", "c", filter={"$nonsense": 1})
    with pytest.raises(pymongo.errors.OperationFailure):
        db.command("nonsense")
    with db.client.start_session() as session, session.start_transaction():
        db.c.insert_one({}, session=session)


def test_what_is_done_is_counted(own, db):
    before = own.samples()
    work(db)
    after = own.samples()

    def more(name):
        return after.get(name, 0) - before.get(name, 0)

    assert more('marula_operations_total{type="insert"}') == 51
    assert more('marula_operations_total{type="update"}') == 1
    assert more('marula_operations_total{type="delete"}') == 1
    assert more('marula_documents_total{action="inserted"}') == 51
    assert more('marula_command_failures_total{command="find"}') == 1
    assert more("marula_unknown_commands_total") == 1
    assert more("marula_cursors_opened_total") == 1
    assert more("marula_sorts_without_index_total") == 1
    assert more("marula_collection_scans_total") >= 1
    assert more('marula_transactions_total{event="started"}') == 1
    assert more('marula_transactions_total{event="committed"}') == 1
    assert after['marula_collections{kind="collection"}'] - before['marula_collections{kind="collection"}'] >= 1
    assert more("marula_oplog_entries") >= 53
    assert after["marula_oplog_last_timestamp_seconds"] >= after["marula_oplog_first_timestamp_seconds"] > 1.6e9
    assert after["process_resident_memory_bytes"] > 1 << 20
    assert abs(after["process_start_time_seconds"] - time.time()) < 600
    assert after["marula_ready"] == after["marula_storage_healthy"] == 1


def test_latencies_are_histograms_by_command(own, db):
    def of_ping(samples):
        name = 'marula_command_duration_seconds_%s{command="ping"%s}'
        buckets = {key: value for key, value in samples.items()
                   if key.startswith('marula_command_duration_seconds_bucket{command="ping"')}
        return samples.get(name % ("count", ""), 0), samples.get(name % ("sum", ""), 0), buckets

    count, total, _ = of_ping(own.samples())
    for _ in range(20):
        db.command("ping")
    now, now_total, buckets = of_ping(own.samples())
    assert now - count == 20 and now_total > total
    values = list(buckets.values())
    assert values == sorted(values) and values[-1] == now
    limits = [float(re.search('le="([^"]+)"', key).group(1)) for key in buckets]
    assert limits == sorted(limits) and limits[-1] == float("inf") and len(limits) == 22


def test_counts_are_those_of_server_status(own, db):
    work(db)
    status, samples = db.client.admin.command("serverStatus"), own.samples()
    commands = status["metrics"]["commands"]
    for name in ("insert", "find", "update", "delete", "getMore"):
        ran = samples['marula_command_duration_seconds_count{command="%s"}' % name]
        assert ran + commands[name].get("rejected", 0) == commands[name]["total"], name
        assert samples.get('marula_command_failures_total{command="%s"}' % name, 0) == commands[name]["failed"], name
    for kind in ("insert", "update", "delete", "getmore"):
        assert samples['marula_operations_total{type="%s"}' % kind] == status["opcounters"][kind]


@pytest.mark.embedded
def test_the_engine_is_measured(own, db):
    before = own.samples()
    db.get_collection("c", write_concern=pymongo.WriteConcern(j=True)).insert_one({})
    samples = own.samples()
    assert samples["marula_storage_sync_duration_seconds_count"] > before["marula_storage_sync_duration_seconds_count"]
    for name in ('marula_storage_cache_bytes{cache="block"}', 'marula_storage_cache_limit_bytes{cache="record"}',
                 'marula_storage_memtable_bytes{space="records"}', "marula_storage_flushes_total",
                 'marula_storage_compaction_bytes_total{direction="read"}', "marula_storage_write_stalls_total"):
        assert name in samples, name
    assert samples["marula_storage_log_lost_bytes"] == 0


def documented():
    """Names and types of the table in docs/metrics.md."""
    with open(os.path.join(server.ROOT, "docs", "metrics.md"), encoding="utf-8") as page:
        rows = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|", page.read(), re.M)
    assert len(rows) == len(dict(rows))
    return dict(rows)


@pytest.mark.embedded
def test_names_are_those_that_are_documented(own, db, tmp_path):
    work(db)
    _, text = own.get("/metrics")
    exposed = families(text)
    # Without TLS there are no handshakes.
    assert exposed == {name: kind for name, kind in documented().items() if name != "marula_tls_handshakes_total"}


def panels():
    with open(os.path.join(server.ROOT, "docs", "grafana", "marula.json"), encoding="utf-8") as dashboard:
        dashboard = json.load(dashboard)
    return [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.embedded
def test_the_dashboard_asks_for_what_is_exposed(own, db):
    work(db)
    _, text = own.get("/metrics")
    kinds, samples = families(text), own.samples()
    assert len(panels()) > 30
    for title, query in panels():
        asked = re.findall(r"\b((?:marula|process)_[a-z_]+)(?:\{([^}]*)\})?", query)
        assert asked, (title, query)
        for name, matchers in asked:
            family = re.sub("_(bucket|sum|count)$", "", name)
            family = name if name in kinds else family
            assert family in kinds, (title, name)
            # Every rate is of a counter, and every counter is queried by its rate.
            is_counter = kinds[family] != "gauge"
            assert is_counter == bool(re.search(r"(rate|increase)\(%s\{" % name, query)), (title, name)
            labels = set()
            for key in samples:
                if key.split("{")[0] == name:
                    labels.update(re.findall(r'([a-z]+)="', key))
            for label in re.findall(r"([a-z]+)(?:=~|!=|=)", matchers):
                assert label in labels | {"instance", "job"}, (title, name, label)


def test_health_and_readiness(tmp_path):
    with Metered(dbpath=str(tmp_path)) as own:
        assert own.get("/healthz") == (200, "ok\n")
        assert own.get("/readyz") == (200, "ready\n")
        assert own.get("/nothing")[0] == 404


def test_a_server_that_ends_is_not_ready():
    with Metered() as own, pymongo.MongoClient(own.uri) as client:
        client.test.c.insert_one({})
        # Something that runs on while the server ends: it is up, and not ready.
        seen = []
        connection = http.client.HTTPConnection("127.0.0.1", own.metrics_port, timeout=10)
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b"ready\n"
        own.process.send_signal(signal.SIGTERM)
        try:
            while True:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                seen.append((answer.status, answer.read()))
        except (OSError, http.client.HTTPException):
            pass
        assert set(seen) <= {(200, b"ready\n"), (503, b"the server is ending\n")}
        assert own.process.wait(30) == 0


def test_it_listens_on_the_loopback_and_says_where(tmp_path):
    with Metered() as own:
        status = pymongo.MongoClient(own.uri).admin.command("getCmdLineOpts")["parsed"]
        assert status["metrics"] == {"listen": str(own.metrics_port)}
        with open("/proc/net/tcp", encoding="ascii") as sockets:
            listening = [line.split()[1] for line in sockets if line.split()[3] == "0A"]
        assert "0100007F:%04X" % own.metrics_port in listening
        assert "00000000:%04X" % own.metrics_port not in listening
    port = server.free_port()
    file = tmp_path / "marula.conf"
    file.write_text("metrics:\n  listen: 127.0.0.1:%d\n" % port)
    with server.Server("--config", str(file)):
        wait_until_ready(port)
        assert urllib.request.urlopen("http://127.0.0.1:%d/readyz" % port, timeout=10).read() == b"ready\n"


def raw(port, data, close=False):
    """Sends bytes and returns all that comes until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(data)
        if close:
            s.shutdown(socket.SHUT_WR)
        answer = b""
        while True:
            try:
                more = s.recv(65536)
            except ConnectionResetError:
                return answer
            if not more:
                return answer
            answer += more


def test_what_is_not_http_is_refused_and_harms_nobody(own):
    for data, status in [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
                         (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 8192, 431),
                         (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 413),
                         (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
                         (b"GET / HTTP/3\r\n\r\n", 505)]:
        answer = raw(own.metrics_port, data)
        assert answer.startswith(b"HTTP/1.1 %d " % status), (data[:30], answer[:60])
    assert own.get("/healthz")[0] == 200


def test_requests_in_pieces_and_one_after_another(own):
    with socket.create_connection(("127.0.0.1", own.metrics_port), timeout=10) as s:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            s.sendall(bytes([byte]))
        assert s.recv(4096).endswith(b"\r\n\r\nok\n")
        s.sendall(b"HEAD /healthz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while more := s.recv(4096):
            answer += more
    head, second = answer.split(b"\r\n\r\n", 1)
    assert b"Content-Length: 3" in head and second.startswith(b"HTTP/1.1 200 OK\r\n") and second.endswith(b"ready\n")


def test_many_silent_and_slow_clients_hold_nobody_up(own):
    silent = [socket.create_connection(("127.0.0.1", own.metrics_port), timeout=10) for _ in range(200)]
    try:
        for s in silent:
            s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(5):
            status, text = own.get("/metrics")
            assert status == 200 and "marula_build_info" in text
        # The endpoint's connections are limited: it has closed most of them.
        closed = 0
        for s in silent:
            s.settimeout(0.05)
            try:
                closed += s.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
        assert closed >= 200 - 32
    finally:
        for s in silent:
            s.close()
    with pymongo.MongoClient(own.uri) as client:
        assert client.admin.command("ping")["ok"] == 1


def test_one_who_does_not_read_is_let_go(own):
    # Asks more than its socket's buffers hold and reads nothing: the responses stop being made, and
    # others are served.
    with socket.create_connection(("127.0.0.1", own.metrics_port), timeout=10) as s:
        s.setblocking(False)
        asked = 0
        try:
            while asked < 64 << 20:
                asked += s.send(b"GET /metrics HTTP/1.1\r\n\r\n" * 100)
        except BlockingIOError:
            pass
        before = own.samples()["process_resident_memory_bytes"]
        for _ in range(10):
            assert own.get("/healthz")[0] == 200
        assert own.samples()["process_resident_memory_bytes"] < before + (64 << 20)


def test_scrapes_at_once_with_work(own, db):
    stop, failures = threading.Event(), []

    def scrape():
        while not stop.is_set():
            status, text = own.get("/metrics")
            if status != 200 or "marula_build_info" not in text:
                failures.append(status)

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for i in range(300):
            db.c.insert_one({"_id": i})
            db["c%d" % (i % 10)].drop()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_mistakes_of_the_option(tmp_path):
    for value in ("nonsense", "70000", "1.2.3.4", ""):
        words = ["--dbpath", str(tmp_path), "--port", str(server.free_port()), "--metrics-listen", value]
        done = server.subprocess.run([*server.serve_command(), *words], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and "is not a port, nor an address and a port" in done.stderr, done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["--dbpath", str(tmp_path), "--port", "0", "--metrics-listen", str(port)]
        done = server.subprocess.run([*server.serve_command(), *words], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and "for metrics" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not os.listdir(tmp_path)


def test_latches_and_locks_are_counted(own, db):
    db.c.insert_one({"_id": 1, "n": 0})
    before = own.samples()
    with db.client.start_session() as session:
        session.start_transaction()
        db.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        other = threading.Thread(target=lambda: db.c.update_one({"_id": 1}, {"$inc": {"n": 1}}))
        other.start()
        while own.samples()["marula_lock_waits_total"] == before["marula_lock_waits_total"]:
            time.sleep(0.01)
        assert own.samples()['marula_transactions{state="inactive"}'] == 1
        session.commit_transaction()
        other.join()
    assert db.c.find_one({"_id": 1})["n"] == 2


@pytest.mark.embedded
def test_a_worker_that_is_delayed_is_logged_and_counted(tmp_path):
    """By its write to the audit log: here that is a pipe that nobody reads."""
    path = tmp_path / "audit"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    read = threading.Event()

    def drain():
        while not read.wait(0.01):
            with contextlib.suppress(BlockingIOError):
                os.read(pipe, 1 << 16)

    reader = threading.Thread(target=drain)
    options = ["--auth", "--auditDestination", "file", "--auditFormat", "JSON", "--auditPath", str(path)]
    try:
        with Metered(*options) as own:
            with Raw(own.port) as stranger:
                # Each is rejected, which is an event.
                for _ in range(20):
                    stranger.send({"find": "c", "$db": "t"})
                assert own.samples()["marula_late_workers_total"] == 0
                until = time.monotonic() + 20
                while own.samples()["marula_late_workers_total"] == 0:
                    assert time.monotonic() < until, own.tail()
                    time.sleep(0.05)
                reader.start()
                for _ in range(20):
                    assert stranger.reply()["code"] == 13
            line, = [json.loads(text) for text in own.tail(1 << 20).splitlines() if "is held up" in text]
            assert (line["s"], line["msg"]) == ("W", "a network worker is held up by one connection")
            assert re.match(r"conn\d+$", line["ctx"])
            assert line["attr"]["command"] == "find" and line["attr"]["late_ms"] >= 1000
            with pymongo.MongoClient(own.uri) as client:
                client.admin.command("createUser", "root", pwd="p", roles=["root"])
            with pymongo.MongoClient(own.uri, username="root", password="p") as client:
                assert client.admin.command("serverStatus")["marula"]["lateWorkers"] == 1
            assert own.samples()["marula_late_workers_total"] == 1
    finally:
        read.set()
        if reader.is_alive():
            reader.join()
        os.close(pipe)
