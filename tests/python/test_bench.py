"""`marula bench`: comparisons run end to end with tiny inputs, wrong answers end them, Ctrl-C leaves a report."""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import server

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="a program of Marula's own")

COMPARISONS = ["products", "stock", "news", "rows", "mixed"]
TINY = ["--scale", "0.00005", "--seconds", "0.02", "--runs", "1"]


def bench(*words, timeout=300):
    command = [server.serve_command()[0], "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def check(result, code, part):
    assert result.returncode == code, result.stdout + result.stderr
    assert part in result.stdout + result.stderr


def test_comparisons_are_listed():
    listed = bench("list")
    check(listed, 0, "Scale 1 is")
    assert [line.split()[0] for line in listed.stdout.splitlines() if line[:1].strip()] == COMPARISONS


def test_mistakes_of_the_command_line_are_named(tmp_path):
    check(bench("run", "nothing", "--out", tmp_path), 1, "no comparison is called 'nothing'")
    check(bench("run", "stock", "--target", "oracle", "--out", tmp_path), 1, "not a target: 'oracle'")
    check(bench("run", "stock", "--scale", "0", "--out", tmp_path), 1, "must be more than 0")
    check(bench("run", "stock", "--target", "mongodb://127.0.0.1:1", "--out", tmp_path), 1, "no connection")
    check(bench("report", tmp_path / "none"), 1, "has no results")


def test_a_report_has_everything(tmp_path):
    """Two targets, of which one is started and one runs already; the report can be drawn again."""
    with server.Server() as running:
        check(bench("run", "news", "--target", "marula", "--target", running.uri, *TINY, "--out", tmp_path), 0, "report")
    record = json.loads((tmp_path / "news.json").read_text())
    assert record["stopped"] is None
    assert len(record["targets"]) == 2 and all("Marula" in t["version"] for t in record["targets"])
    for group in record["groups"]:
        assert group["points"], group["id"]
        for point in group["points"]:
            assert [len(samples) for samples in point["samples"]] == [1, 1]
            assert all(sample["server_cpu_us"] > 0 for samples in point["samples"] for sample in samples)
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert glob.glob(str(tmp_path / "charts" / "*.svg"))
    os.remove(tmp_path / "report.html")
    check(bench("report", tmp_path), 0, "report.html")
    assert (tmp_path / "report.html").read_text() == page


class Liar:
    """Stands between client and server and changes some bytes of every answer."""

    def __init__(self, port, truth, lie):
        self.port, self.truth, self.lie = port, truth, lie
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1100)
        self.uri = "mongodb://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self.port))
            for source, to, lies in ((client, upstream, False), (upstream, client, True)):
                threading.Thread(target=self.pump, args=(source, to, lies), daemon=True).start()

    def pump(self, source, to, lies):
        try:
            while chunk := source.recv(1 << 16):
                to.sendall(chunk.replace(self.truth, self.lie) if lies else chunk)
        except OSError:
            pass
        to.close()


@pytest.mark.parametrize("truth, lie, complaint", [
    (b"\x10n\0\1\0\0\0", b"\x10n\0\2\0\0\0", "a write answered n"),
    (b"code\0\x09\0\0\0P00000", b"code\0\x09\0\0\0Q00000", "does not fulfil"),
    (b"firstBatch", b"otherBatch", "no batch"),
])
def test_a_wrong_answer_ends_the_run(tmp_path, truth, lie, complaint):
    with server.Server() as honest:
        liar = Liar(honest.port, truth, lie)
        ended = bench("run", "stock", "--target", liar.uri, *TINY, "--out", tmp_path)
        liar.listener.close()
    check(ended, 1, complaint)
    assert complaint in json.loads((tmp_path / "stock.json").read_text())["stopped"]
    assert "Not complete" in (tmp_path / "report.html").read_text()


def test_ctrl_c_leaves_a_report_and_no_server(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    command = [server.serve_command()[0], "bench", "run", "stock", "--seconds", "1", "--out", str(tmp_path / "out"),
                                             "--folder", str(folder)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    record = tmp_path / "out" / "stock.json"
    # The record is there once the first step that counts is over.
    while not record.exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    output = running.communicate(timeout=60)[0]
    assert running.returncode == 1 and "stopped by Ctrl-C" in output
    assert json.loads(record.read_text())["stopped"] == "stopped by Ctrl-C"
    assert "Not complete" in (tmp_path / "out" / "report.html").read_text()
    assert not list(folder.iterdir())


POSTGRES = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL's server is not installed")
def test_postgresql_answers_the_same(tmp_path):
    """News and products use every statement: one row and many, indexes of each kind, updates, finds."""
    folder = os.path.dirname(POSTGRES[-1])
    words = ["run", "news", "products", "--postgres", folder, "--target", "marula", *TINY, "--out", tmp_path]
    check(bench(*words), 0, "report")
    for name in ("news", "products"):
        record = json.loads((tmp_path / (name + ".json")).read_text())
        assert [target["version"].split()[0] for target in record["targets"]] == ["Marula", "PostgreSQL"]


TOKYO_CABINET = glob.glob("/usr/lib/*/libtokyocabinet.so.9")


@pytest.mark.skipif(not TOKYO_CABINET, reason="libtokyocabinet9 is not installed")
def test_tokyo_cabinet_stands_beside_the_servers(tmp_path):
    """Its gets are compared with the whole items, so a wrong column would end the run."""
    words = ["--target", "tokyocabinet", *TINY, "--out", tmp_path, "--folder", tmp_path / "data"]
    check(bench("run", "news", "--target", "marula", *words), 0, "report")
    record = json.loads((tmp_path / "news.json").read_text())
    assert record["targets"][1]["version"].startswith("Tokyo Cabinet 1.4")
    samples = [point["samples"][1] for group in record["groups"] for point in group["points"]]
    assert all(sample["operations"] and sample["server_cpu_us"] > 0 for runs in samples for sample in runs)
    assert not list((tmp_path / "data").iterdir())
    check(bench("run", "stock", *words), 1, "none unique")


@pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made with the openssl command")
def test_what_production_costs_is_measured(tmp_path):
    """bench/production.py runs to its end with tiny inputs: its loads get right answers, its restores have every document."""
    command = [sys.executable, os.path.join(server.ROOT, "bench", "production.py"), "--smoke", "--folder", tmp_path,
               "--marula", server.serve_command()[0]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("TLS, authenticated find", "writes during a full backup", "restore, online: ", "restore, closed: ",
                 "a scrape of /metrics", "from the start to the first answer", "dump of ", "restore CPU of "):
        assert part in done.stdout, done.stdout
    assert not list(tmp_path.iterdir())


def test_several_processes_are_measured():
    """bench/nodes.py runs to its end with tiny inputs, where there is an etcd: its loads get right answers."""
    server.prepared("etcd")
    command = [sys.executable, os.path.join(server.ROOT, "bench", "nodes.py"), "--smoke", "--marula", server.serve_command()[0]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("insert, 16 connections, 3 processes", "find by _id, 16 connections, 1 processes", "loss of etcd's leader"):
        assert part in done.stdout, done.stdout


@pytest.mark.parametrize("script, parts", [
    ("measurements.py", ("the latest 100: Marula", "the latest of each sensor, index on sensor and time: Marula")),
    ("growth.py", ("bulkWrite of upserts: Marula", "$sample of ten: Marula")),
])
def test_operations_are_measured(tmp_path, script, parts):
    """These scripts run to their ends with tiny inputs."""
    command = [sys.executable, os.path.join(server.ROOT, "bench", script), "--smoke", "--folder", tmp_path,
               "--marula", server.serve_command()[0]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in parts:
        assert part in done.stdout, done.stdout
    assert not list(tmp_path.iterdir())
