"""kill -9 of a server while it makes backups and sends its log, of programs that make, restore and prune backups: every
backup that was there before can still be restored, and moments have what they must.

MARULA_CRASH_ROUNDS sets the number of rounds, MARULA_CRASH_SEED repeats a run.
"""
import calendar
import os
import random
import shutil
import subprocess
import threading
import time

import pymongo
import pytest
import server
from backups import PROGRAM, at, backup, ids, killed, now_us, wait_for_log

ROUNDS = int(os.environ.get("MARULA_CRASH_ROUNDS", "3"))
# Rounds with the same folder. Each restores the writes of all earlier ones, so more would make a
# long run slow.
ROUNDS_TOGETHER = 25
# How long the server keeps backups. That many rounds take longer, so that it prunes, too.
KEEP_S = 120

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="backups are Marula's own")


class Writer(threading.Thread):
    """Writes pairs until the server is gone: a document with an index and its twin; notes when."""

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.port, self.number, self.times = port, number, []

    def run(self):
        uri = "mongodb://127.0.0.1:%d/?directConnection=true" % self.port
        with pymongo.MongoClient(uri, retryWrites=False, serverSelectionTimeoutMS=2000) as client:
            try:
                for count in range(1_000_000):
                    began = now_us()
                    client.db.pairs.insert_many([
                        {"_id": {"w": self.number, "n": count, "half": half}, "n": count, "x": os.urandom(300)}
                        for half in (0, 1)])
                    self.times.append((began, now_us()))
            except pymongo.errors.PyMongoError:
                pass


def check(uri, writers, moment):
    """Writes acknowledged before a moment are present, in order; those started after it are not."""
    with pymongo.MongoClient(uri) as client:
        report = client.db.command("validate", "pairs", full=True)
        assert report["valid"], report
        assert client.db.pairs.estimated_document_count() == report["nrecords"]
        there = {}
        for doc in client.db.pairs.find({}, {"_id": 1}).hint("n_1"):
            there.setdefault(doc["_id"]["w"], set()).add((doc["_id"]["n"], doc["_id"]["half"]))
    for writer in writers:
        found = there.get(writer.number, set())
        count = len(found) // 2
        # An insert of two documents is two commits: of the last pair the second may be missing.
        whole = {(n, half) for n in range(count) for half in (0, 1)}
        assert found in (whole, whole | {(count, 0)}), "pairs, in order"
        acknowledged = sum(ended < moment for _, ended in writer.times)
        # One more may have begun when the server was killed.
        began = sum(began <= moment for began, _ in writer.times) + 1
        assert acknowledged <= count <= began, (writer.number, acknowledged, count, began)


def options(target, key):
    return ["--backup-to", target, "--backup-every", "1s", "--backup-log-every", "1s", "--backup-keep",
            "%ds" % KEEP_S, *(["--backup-key-file", key[1]] if key else [])]


def age_s(name):
    """The age of a backup in seconds: its name begins with the time, as 2026-11-24T224802Z."""
    return time.time() - calendar.timegm(time.strptime(name[:18], "%Y-%m-%dT%H%M%SZ"))


@pytest.mark.parametrize("form", ["plain", "encrypted"])
def test_earlier_backups_stay_usable(tmp_path, form):
    seed = int(os.environ.get("MARULA_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    rng = random.Random(seed)
    key = []
    if form == "encrypted":
        (tmp_path / "key").write_bytes(os.urandom(32))
        key = ["--key-file", str(tmp_path / "key")]
    for first in range(0, ROUNDS, ROUNDS_TOGETHER):
        folder = tmp_path / str(first)
        folder.mkdir()
        run_rounds(folder, rng, key, range(first, min(first + ROUNDS_TOGETHER, ROUNDS)))
        shutil.rmtree(folder)


def run_rounds(tmp_path, rng, key, rounds):
    """Kills something in each round and checks the backups in this folder."""
    target, data = str(tmp_path / "backups"), str(tmp_path / "data")
    writers, survivors, restored = [], set(), 0
    for round_ in rounds:
        with server.Server(*options(target, key), dbpath=data) as own:
            with pymongo.MongoClient(own.uri) as client:
                client.db.pairs.create_index("n")
                # From the first backup on there must always be one.
                while not survivors and "lastBackup" not in client.admin.command("backupStatus")["schedule"]:
                    time.sleep(0.05)
            mine = [Writer(own.port, round_ * 10 + n) for n in range(3)]
            writers += mine
            [writer.start() for writer in mine]
            while not any(writer.times for writer in mine):
                assert any(writer.is_alive() for writer in mine), "nothing was written"
                time.sleep(0.01)
            host = ["--host", "127.0.0.1:%d" % own.port]
            kind = rng.choice(["server", "create", "prune", "restore"])
            print("round %d: %s, %s" % (round_ + 1, kind, time.strftime("%H:%M:%S")), flush=True)
            if kind == "server" and rng.random() < 0.6:
                # There will be a moment of this round to restore.
                wait_for_log(own.uri, now_us())
                wait_for_log(own.uri, now_us() + 300_000)
            until = time.monotonic() + rng.uniform(0.5, 3)
            while time.monotonic() < until:
                if kind == "create":
                    killed(rng, "create", target, *host, *key)
                elif kind == "prune" and survivors:
                    killed(rng, "prune", target, "--keep", "2s", *key)
                elif kind == "restore" and survivors:
                    killed(rng, "restore", target, "--to", str(tmp_path / "cut"), *key)
                    shutil.rmtree(tmp_path / "cut", ignore_errors=True)
                else:
                    time.sleep(0.1)
            own.kill()
            [writer.join(30) for writer in mine]
        if not os.path.exists(os.path.join(target, "repository.json")):
            continue
        names = set(ids(target, *key))
        if kind != "prune":
            gone = [name for name in survivors - names if age_s(name) <= KEEP_S]
            assert not gone, "backups are gone that nobody removed: %s" % gone
        survivors = names
        if not names:
            continue
        some = rng.sample(sorted(names), min(2, len(names)))
        for name in some:
            backup("verify", target, "--backup", name, "--objects-only", *key)
        assert "0 faults" in backup("verify", target, "--backup", rng.choice(some), "--temp", str(tmp_path), *key)
        # A moment of the log, by the clock, where there is one that the log reaches.
        listed = backup("list", target, *key)
        times = [time for writer in writers[-6:] for pair in writer.times[::7] for time in pair]
        if "every moment" not in listed:
            continue
        # From the newest back to the oldest: the last second may not have been sent.
        for moment in sorted(rng.sample(times, min(16, len(times))), reverse=True):
            to = tmp_path / "moment"
            done = subprocess.run([PROGRAM, "backup", "restore", target, "--to", str(to), "--at", at(moment), *key],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                assert "do not reach" in done.stderr, done.stderr
                continue
            restored += 1
            with server.Server(dbpath=str(to)) as copy:
                check(copy.uri, writers, moment)
            shutil.rmtree(to)
            break
    if survivors:
        to = tmp_path / "latest"
        backup("restore", target, "--to", to, *key)
        with server.Server(dbpath=str(to)) as copy, pymongo.MongoClient(copy.uri) as client:
            assert client.db.command("validate", "pairs", full=True)["valid"]
    print("%d rounds, %d backups at the end, %d moments restored" % (len(rounds), len(survivors), restored))
