"""Counts the instructions of a server for each of a few operations, with callgrind.

    $(tools/setup python) bench/instructions.py [--runs 3] target/release/marula [another/marula ...]

The server runs under valgrind with counting off. The script loads documents, flushes the memtables,
compacts the collections, executes each operation some times to warm up, and then counts. For each
operation it prints the median of the runs, all instructions and those outside of RocksDB, and the
differences of every further binary from the first one.

Only the threads that run commands count, the network workers and the pool: RocksDB flushes and
compacts when it likes. RocksDB's part of a write differs by several percent from run to run, because
the skip lists of its memtables are random. The part outside of it, which is Marula's, the
allocator's and the copying of bytes, differs by 0.1%. Needs valgrind.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import pymongo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import server  # noqa: E402

DOCUMENTS = 20_000
SCANNED = 2_000

# RocksDB's functions, and those of libraries that it alone calls, or that compare its keys.
ENGINE = re.compile("rocksdb|LZ4|memcmp|std::__cxx11|std::_Hashtable")


class Counted(server.Server):
    """A server under callgrind, with counting off."""

    def __init__(self, binary, dumps):
        self.binary, self.dumps = binary, dumps
        super().__init__(wait=300)

    def command(self):
        return ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes",
                f"--callgrind-out-file={self.dumps}", self.binary, "serve", "--dbpath", self.dbpath, "--port", str(self.port)]


def operations(db):
    """Rows of a name, the number of calls to count, and a function of the number of the call."""
    people, scanned = db.people, db.scanned
    new_ids = iter(range(10**6, 10**7))

    def insert(_):
        n = next(new_ids)
        people.insert_one({"_id": n, "email": f"n{n}@example.com", "a": n % 977, "b": n % 31})

    def update(n):
        email = f"{n * 7 % DOCUMENTS}@example.com"
        people.update_one({"email": email}, {"$inc": {"count": 1}})

    def find_range(n):
        low = n % 900
        found = people.find({"a": {"$gte": low, "$lt": low + 25}}, batch_size=600, limit=500)
        assert len(list(found)) == 500

    return [
        ("find by _id", 2_000, lambda n: people.find_one({"_id": n * 7 % DOCUMENTS})),
        ("insertOne, three indexes", 2_000, insert),
        ("updateOne by a unique index", 2_000, update),
        ("a range of 500", 100, find_range),
        ("a scan of 2,000", 50, lambda _: list(scanned.find({"b": -1}))),
    ]


def load(client):
    # The log of slow operations would be counted too: everything is slow under valgrind.
    client.admin.command("profile", 0, slowms=600_000)
    db = client.test
    keys = [pymongo.IndexModel("email", unique=True), pymongo.IndexModel("a"), pymongo.IndexModel("b")]
    db.people.create_indexes(keys)
    for start in range(0, DOCUMENTS, 1_000):
        db.people.insert_many(
            {"_id": n, "email": f"{n}@example.com", "a": n % 977, "b": n % 31}
            for n in range(start, start + 1_000)
        )
    db.scanned.insert_many({"_id": n, "b": n % 31, "text": "x" * 60} for n in range(SCANNED))
    client.admin.command("fsync")
    # Otherwise the number of files that a look-up searches depends on background compactions.
    for name in ("people", "scanned"):
        db.command("compact", name, force=True)
    return db


def measure(binary):
    """Returns the instructions of each operation, all and outside of RocksDB, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = pathlib.Path(folder, "dump")
        with Counted(binary, dumps) as own:
            with pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=300_000, socketTimeoutMS=600_000) as client:
                db = load(client)
                counts = {}
                for name, calls, run in operations(db):
                    for n in range(calls // 4):
                        run(n)
                    counted = count(own.process.pid, dumps, lambda: [run(n) for n in range(calls)])
                    counts[name] = [instructions / calls for instructions in counted]
                return counts


def count(pid, dumps, work):
    """Returns the instructions that the process `pid` executes during `work` to run commands: all, and
    those outside of RocksDB."""
    control(pid, "--instr=on")
    control(pid, "--zero")
    work()
    before = set(dumps.parent.glob(f"{dumps.name}.*"))
    control(pid, "--dump")
    control(pid, "--instr=off")
    threads = [dump.read_text() for dump in set(dumps.parent.glob(f"{dumps.name}.*")) - before]
    costs = [by_function(thread) for thread in threads if "marula_server::net::" in thread]
    assert costs, "no thread has run a command"
    own = sum(cost for costs in costs for name, cost in costs if not ENGINE.search(name))
    return sum(cost for costs in costs for _, cost in costs), own


def by_function(dump):
    """Returns the functions of a dump, with the instructions of each without those of its callees.

    A name is written once, as `(number) name`, and then as `(number)`. The line after `calls=` has the
    cost of the callee.
    """
    names, costs, function, is_call = {}, {}, None, False
    for line in dump.splitlines():
        if named := re.match(r"(c?)fn=\((\d+)\)(?: (.+))?", line):
            is_callee, number, name = named.groups()
            names.setdefault(number, name)
            function = function if is_callee else number
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[-+*\d]", line):
            if not is_call:
                costs[function] = costs.get(function, 0) + int(line.split()[1])
            is_call = False
    return [(names[number], cost) for number, cost in costs.items()]


def control(pid, option):
    subprocess.run(["callgrind_control", option, str(pid)], capture_output=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each binary, in turns")
    parser.add_argument("binaries", nargs="+", metavar="BINARY")
    arguments = parser.parse_args()
    runs = {binary: [] for binary in arguments.binaries}
    for _ in range(arguments.runs):
        for binary in arguments.binaries:
            runs[binary].append(measure(binary))
            shown = {name: [round(part) for part in counted] for name, counted in runs[binary][-1].items()}
            print(binary, shown, flush=True)
    for name in runs[arguments.binaries[0]][0]:
        for part, of in enumerate(("all", "outside of RocksDB")):
            medians = [statistics.median(run[name][part] for run in runs[binary]) for binary in arguments.binaries]
            differences = [f"{median / medians[0] - 1:+8.2%}" for median in medians[1:]]
            print(f"{name:28} {of:18}", *(f"{median:12,.0f}" for median in medians), *differences)


if __name__ == "__main__":
    main()
