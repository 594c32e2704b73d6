#!/usr/bin/env python3
"""Measures what running Marula in production costs: TLS, backups, metrics, many collections, dumps.

    "$(tools/setup python)" bench/production.py --marula target/release/marula --mongod "$(tools/setup mongod)"

Each row prints a line of its own; `--rows tls,start` measures a part, `--smoke` runs everything with tiny inputs and measures
nothing. Both servers run on fresh folders below `--folder`, one after the other, with the same client.
"""
import argparse
import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import pymongo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import server  # noqa: E402
from load import drive  # noqa: E402
from raw import Raw, message  # noqa: E402

USER, PASSWORD = "bench", "of no value"


class Sizes:
    """How much each row does."""

    def __init__(self, smoke, data_mb):
        self.seconds = 0.3 if smoke else 5
        self.runs = 1 if smoke else 3
        self.data_bytes = 4_000_000 if smoke else data_mb * 1_000_000
        self.collections = 50 if smoke else 10_000
        self.scrapes = 5 if smoke else 100


class Side(server.Server):
    """A server of either kind."""

    def __init__(self, words, folder, *options, wait=60.0):
        self.words = words
        super().__init__(*options, dbpath=tempfile.mkdtemp(prefix="data-", dir=folder), wait=wait)

    def command(self):
        return [*self.words, "--dbpath", self.dbpath, "--port", str(self.port), "--bind_ip", "127.0.0.1", *self.args]

    def cpu_s(self):
        """The processor time of the process, in seconds, by the system's ticks of 10 ms."""
        with open("/proc/%d/stat" % self.process.pid) as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self):
        with open("/proc/%d/statm" % self.process.pid) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self):
        super().close()
        shutil.rmtree(self.dbpath, ignore_errors=True)


def comparison(doc, runs, what):
    """The arguments of a script that measures both kinds of servers, read; `runs` is the number of runs of each `what`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marula", required=True, help="the program")
    parser.add_argument("--mongod", help="the mongod to measure in the same run")
    parser.add_argument("--folder", help="where the data is (a temporary folder)")
    parser.add_argument("--runs", type=int, default=runs, help="of each %s; medians are shown (%%(default)s)" % what)
    parser.add_argument("--smoke", action="store_true", help="everything, with tiny inputs")
    return parser.parse_args()


@contextlib.contextmanager
def started(options, prefix):
    """The servers of a comparison, by their kinds."""
    programs = {"Marula": [options.marula, "serve"], **({"mongod": [options.mongod]} if options.mongod else {})}
    with tempfile.TemporaryDirectory(prefix=prefix, dir=options.folder) as folder, contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(contextlib.closing(Side(words, folder))) for kind, words in programs.items()}


def client_of(side, **options):
    return pymongo.MongoClient("127.0.0.1", side.port, directConnection=True, **options)


def words(size):
    """Text of words that come again, so that half of it can be compressed away."""
    rng = random.Random(1)
    known = ["%x" % rng.getrandbits(28) for _ in range(2000)]
    return " ".join(rng.choices(known, k=size // 7))


TEXT = words(4 << 20)


def text(number, size=900):
    """A piece of that text."""
    begin = number * 7919 % (len(TEXT) - size)
    return TEXT[begin:begin + size]


def documents(count, first=0):
    """Documents of about 1 kB."""
    for number in range(first, first + count):
        yield {"_id": number, "n": number * 7919 % 1_000_003, "price": number / 7, "tags": text(number, 60).split(),
               "text": text(number)}


def load(client, data_bytes, names=("c0",)):
    """Fills collections with an index each, and returns the bytes of their documents."""
    count = data_bytes // 1000 // len(names)
    for number, name in enumerate(names):
        collection = client.bench[name]
        collection.create_index("n")
        for first in range(0, count, 2000):
            collection.insert_many(documents(min(2000, count - first), first=number * count + first), ordered=False)
    return sum(client.bench.command("collStats", name)["size"] for name in names)


def loaded(side, connections, make, seconds, **options):
    """Puts a load on a server from a process of its own; returns operations per second and the server's CPU of each."""
    receiver, sender = multiprocessing.Pipe(False)
    worker = multiprocessing.Process(target=drive, args=(sender, [side.port], connections, make, seconds), kwargs=options)
    worker.start()
    receiver.recv()
    before = side.cpu_s()
    elapsed, done = receiver.recv()
    operations = len(done)
    cpu_s = side.cpu_s() - before
    worker.join()
    return operations / elapsed, cpu_s / max(operations, 1) * 1e6


# ---- TLS


def find_by_id(connection, number):
    """A find of one of 10,000 documents."""
    return message({"find": "c", "filter": {"_id": (connection * 7919 + number * 104_729) % 10_000}, "limit": 1,
                    "singleBatch": True, "$db": "bench"})


def certificate(folder):
    """A self-signed certificate with its key, in one file."""
    key, cert, both = (os.path.join(folder, name) for name in ("server.key", "server.crt", "server.pem"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    with open(both, "w") as out:
        out.write(open(cert).read() + open(key).read())
    return both, cert


def row_tls(options, sizes, folder):
    """TLS and an authenticated find by _id at 100 connections: server CPU of one."""
    pem, ca = certificate(folder)
    costs = {}
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, words in options.sides.items():
            side = stack.enter_context(Side(words, folder, "--auth", "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", pem,
                                            "--tlsCAFile", ca, "--tlsAllowConnectionsWithoutCertificates"))
            sides[name] = side
            with client_of(side, tls=True, tlsCAFile=ca) as client:
                client.admin.command("createUser", USER, pwd=PASSWORD, roles=["readWriteAnyDatabase"])
            with client_of(side, tls=True, tlsCAFile=ca, username=USER, password=PASSWORD) as client:
                client.bench.c.insert_many([{"_id": n, "text": "x" * 260} for n in range(10_000)])
        for _ in range(sizes.runs):
            for name, side in sides.items():
                _, cost = loaded(side, 100, find_by_id, sizes.seconds, ca=ca, login=(USER, PASSWORD))
                costs.setdefault(name, []).append(cost)
    beside("TLS, authenticated find by _id, 100 connections", "µs of CPU", costs)


def beside(title, unit, values):
    """Prints the medians of the sides, and their ratio."""
    medians = {name: statistics.median(runs) for name, runs in values.items()}
    shown = ", ".join("%s %.3g %s" % (name, median, unit) for name, median in medians.items())
    ratio = ", ratio %.2f" % (medians["marula"] / medians["mongod"]) if len(medians) == 2 else ""
    print("%s: %s%s (runs: %s)" % (title, shown, ratio, {k: ["%.3g" % v for v in vs] for k, vs in values.items()}), flush=True)


# ---- Backups


def insert_one(connection, number):
    """An insert of 1 kB."""
    return message({"insert": "w", "documents": [{"n": number, "text": text(number)}], "$db": "bench"})


def row_backup(options, sizes, folder):
    """Writes per second while full backups are made, compared with none."""
    target = os.path.join(folder, "backups")
    with Side(options.sides["marula"], folder) as side:
        with client_of(side) as client:
            load(client, sizes.data_bytes)
            client.admin.command("fsync")
            rates = {"without": [], "during": []}
            for run in range(sizes.runs * 2):
                rate, _ = loaded(side, 32, insert_one, sizes.seconds)
                rates["without"].append(rate)
                stop, made = threading.Event(), []

                def full(stop=stop, made=made):
                    while not stop.is_set():
                        began = time.monotonic()
                        client.admin.command({"backup": 1, "to": target, "full": True})
                        made.append(time.monotonic() - began)
                backups = threading.Thread(target=full)
                backups.start()
                rate, _ = loaded(side, 32, insert_one, sizes.seconds)
                rates["during"].append(rate)
                stop.set()
                backups.join()
                print("  run %d: %.0f and %.0f writes/s, backups of %s s" % (
                    run, rates["without"][-1], rate, ["%.1f" % took for took in made]), flush=True)
            shares = [during / without for without, during in zip(rates["without"], rates["during"])]
            print("writes during a full backup: %.0f/s, without %.0f/s, share %.2f (pairs: %s)" % (
                statistics.median(rates["during"]), statistics.median(rates["without"]), statistics.median(shares),
                ["%.2f" % share for share in shares]), flush=True)


def row_restore(options, sizes, folder):
    """A restore, compared with the time that the disk takes for the same number of bytes. A backup by a server has its memtables
    in files; one of a closed folder has the log of what is in no file yet, which a restore applies. A server with a schedule
    has sent all documents in its log, after an empty backup: the restore writes each of them anew."""
    program = options.sides["marula"][0]
    with Side(options.sides["marula"], folder) as side:
        with client_of(side) as client:
            data_bytes = load(client, sizes.data_bytes)
        host = ["--host", "127.0.0.1:%d" % side.port]
        subprocess.run([program, "backup", "create", os.path.join(folder, "online"), *host], check=True, capture_output=True)
        assert side.terminate(120) == 0
        closed = ["--dbpath", side.dbpath]
        subprocess.run([program, "backup", "create", os.path.join(folder, "closed"), *closed], check=True, capture_output=True)
    with Side(options.sides["marula"], folder, "--backup-to", os.path.join(folder, "log"), "--backup-log-every", "1s") as side:
        with client_of(side) as client:
            while "lastBackup" not in client.admin.command("backupStatus")["schedule"]:
                time.sleep(0.05)
            load(client, sizes.data_bytes)
        # A server that ends sends the rest of its log.
        assert side.terminate(120) == 0
    for kind in ("online", "closed", "log"):
        for run in range(sizes.runs):
            restore_once(program, kind, folder, os.path.join(folder, "restored-%d" % run), data_bytes)


def restore_once(program, kind, folder, to, data_bytes):
    """Restores the backup of this name, and prints the figures."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "backup", "restore", os.path.join(folder, kind), "--to", to], check=True, capture_output=True)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    files = [os.path.join(root, name) for root, _, names in os.walk(to) for name in names]
    file_bytes = sum(os.path.getsize(file) for file in files)
    disk_s = written(os.path.join(folder, "plain"), file_bytes)
    shutil.rmtree(to)
    print("restore, %s: %.0f MB of documents in %.2f s, %.0f MB/s, %.2f s of CPU; its %.0f MB of files written and synced by "
          "themselves: %.2f s" % (kind, data_bytes / 1e6, took, data_bytes / 1e6 / took, cpu_s, file_bytes / 1e6, disk_s),
          flush=True)


def written(path, count):
    """The seconds that the disk takes for as many bytes."""
    chunk = os.urandom(1 << 20)
    began = time.monotonic()
    with open(path, "wb") as out:
        for _ in range(count >> 20):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    took = time.monotonic() - began
    os.remove(path)
    return took


# ---- Many collections


def row_collections(options, sizes, folder):
    """10,000 collections with an index each: a scrape of /metrics, and the next start."""
    starts, memory = {}, {}
    for name, words in options.sides.items():
        metrics = server.free_port()
        with Side(words, folder, *(["--metrics-listen", str(metrics)] if name == "marula" else [])) as side:
            with client_of(side) as client:
                for number in range(sizes.collections):
                    client.bench["c%d" % number].insert_one({"_id": 1, "n": number})
                    client.bench["c%d" % number].create_index("n")
            if name == "marula":
                waits, cpu_s = [], side.cpu_s()
                for _ in range(sizes.scrapes):
                    began = time.monotonic()
                    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % metrics) as page:
                        content = page.read()
                    waits.append((time.monotonic() - began) * 1000)
                    time.sleep(0.02)
                assert b'marula_collections{kind="collection"} ' in content
                waits.sort()
                cpu_ms = (side.cpu_s() - cpu_s) / sizes.scrapes * 1000
                print("a scrape of /metrics at %d collections: median %.2f ms, least %.2f ms, %.2f ms of CPU, %.0f kB" % (
                    sizes.collections, statistics.median(waits), waits[0], cpu_ms, len(content) / 1000), flush=True)
            assert side.terminate(120) == 0
            for _ in range(sizes.runs):
                began = time.monotonic()
                side.start(wait=120)
                with client_of(side) as client:
                    assert client.bench.c7.find_one({"n": 7})["_id"] == 1
                starts.setdefault(name, []).append(time.monotonic() - began)
                memory.setdefault(name, []).append(side.memory_mb())
                assert side.terminate(120) == 0
    beside("from the start to the first answer, %d collections" % sizes.collections, "s", starts)
    beside("resident memory then", "MB", memory)


# ---- mongodump and mongorestore: the commands that they send

NAMES = ("c0", "c1", "c2", "c3")


def dump(side, folder):
    """The commands of mongodump: the collections, their indexes, all documents; four collections at a time."""
    def one(name):
        with client_of(side) as client, open(os.path.join(folder, name + ".bson"), "wb") as out:
            list(client.bench[name].list_indexes())
            for batch in client.bench[name].find_raw_batches(hint="_id_"):
                out.write(batch)
    with client_of(side) as client:
        list(client.bench.list_collections())
    each(one)


def restore(side, folder):
    """The commands of mongorestore: batches of a thousand documents, unordered, w: majority; then the indexes."""
    def one(name):
        with open(os.path.join(folder, name + ".bson"), "rb") as dumped, Raw(side.port, timeout=600) as connection:
            documents = dumped.read()
            assert connection.command("copy", create=name)["ok"] == 1
            insert = {"insert": name, "ordered": False, "bypassDocumentValidation": True, "writeConcern": {"w": "majority"},
                      "$db": "copy"}
            begin = 0
            while begin < len(documents):
                end = begin
                for _ in range(1000):
                    end += int.from_bytes(documents[end:end + 4], "little")
                    if end == len(documents):
                        break
                connection.socket.sendall(message(insert, documents=documents[begin:end]))
                reply = connection.reply()
                assert reply["ok"] == 1 and "writeErrors" not in reply, reply
                begin = end
            assert connection.command("copy", createIndexes=name, indexes=[{"key": {"n": 1}, "name": "n_1"}])["ok"] == 1
    each(one)


def each(one):
    """Runs the work of each collection in a process of its own, as the tools run it in threads that do not wait for each other."""
    workers = [multiprocessing.get_context("fork").Process(target=one, args=(name,)) for name in NAMES]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert all(worker.exitcode == 0 for worker in workers)


def row_dump(options, sizes, folder):
    """1 GB out and in again: elapsed, and the server's CPU."""
    figures = {step: {} for step in ("dump", "dump CPU", "restore", "restore CPU")}
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, words in options.sides.items():
            sides[name] = stack.enter_context(Side(words, folder))
            with client_of(sides[name]) as client:
                data_bytes = load(client, sizes.data_bytes, NAMES)
        for _ in range(sizes.runs):
            for name, side in sides.items():
                out = os.path.join(folder, "dump")
                os.makedirs(out)
                for step, work in (("dump", dump), ("restore", restore)):
                    cpu_s, began = side.cpu_s(), time.monotonic()
                    work(side, out)
                    figures[step].setdefault(name, []).append(time.monotonic() - began)
                    figures[step + " CPU"].setdefault(name, []).append(side.cpu_s() - cpu_s)
                with client_of(side) as client:
                    count = sum(client.copy[each_].count_documents({}) for each_ in NAMES)
                    assert count == sum(client.bench[each_].count_documents({}) for each_ in NAMES)
                    client.drop_database("copy")
                shutil.rmtree(out)
    for step, values in figures.items():
        beside("%s of %.0f MB in 4 collections" % (step, data_bytes / 1e6), "s", values)


ROWS = {"tls": row_tls, "backup": row_backup, "restore": row_restore, "collections": row_collections, "dump": row_dump}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--marula", required=True, help="the program")
    parser.add_argument("--mongod", help="the program to compare with")
    parser.add_argument("--rows", default=",".join(ROWS), help="a part of: " + ", ".join(ROWS))
    parser.add_argument("--data-mb", type=int, default=1000, help="documents of the rows backup and dump")
    parser.add_argument("--folder", help="where the data folders are made")
    parser.add_argument("--smoke", action="store_true", help="tiny inputs: measures nothing")
    options = parser.parse_args()
    options.sides = {"marula": [options.marula, "serve"]}
    if options.mongod:
        options.sides["mongod"] = [options.mongod]
    print(subprocess.run([options.marula, "--version"], capture_output=True, text=True).stdout.splitlines()[0], flush=True)
    for name in options.rows.split(","):
        with tempfile.TemporaryDirectory(prefix="marula-production-", dir=options.folder) as folder:
            ROWS[name](options, Sizes(options.smoke, options.data_mb), folder)


if __name__ == "__main__":
    main()
