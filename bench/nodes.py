#!/usr/bin/env python3
"""Measures one, two and three Marula processes over one etcd cluster of three servers, all on this machine.

    "$(tools/setup python)" bench/nodes.py --marula target/release/marula

`throughput` puts 256 connections on the processes; `loss` kills the server that leads etcd under a load of inserts. `--smoke` runs
both with tiny inputs and measures nothing.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading

import pymongo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import etcd_cluster  # noqa: E402
import server  # noqa: E402
from load import drive  # noqa: E402
from raw import message  # noqa: E402

CONNECTIONS = 256
DOCUMENTS = 10_000
# etcd chooses a leader, and the nodes send their requests again: on a busy machine no insert is
# answered for seconds.
RECOVERY_S = 12


def insert_one(connection, number):
    return message({"insert": "w", "documents": [{"n": number, "text": "x" * 260}], "$db": "bench"})


def update_one(connection, number):
    by_id = {"_id": (connection * 7919 + number * 104_729) % DOCUMENTS}
    return message({"update": "c", "updates": [{"q": by_id, "u": {"$inc": {"n": 1}}}], "$db": "bench"})


def find_by_id(connection, number):
    by_id = {"_id": (connection * 7919 + number * 104_729) % DOCUMENTS}
    return message({"find": "c", "filter": by_id, "limit": 1, "singleBatch": True, "$db": "bench"})


class Node(server.Server):
    """One of several Marula processes."""

    def __init__(self, program, *options):
        self.program = program
        super().__init__(*options, wait=60.0)

    def command(self):
        return [self.program, "serve", "--port", str(self.port), "--bind_ip", "127.0.0.1", *self.args]


def cpu_s(pid):
    """The processor time of a process, in seconds."""
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def cluster_of(program, count):
    """etcd with empty servers, and that many nodes, which have a collection of small documents."""
    with etcd_cluster.start() as etcd, contextlib.ExitStack() as stack:
        options = etcd.options() + ["--shared"]
        nodes = [stack.enter_context(contextlib.closing(Node(program, *options))) for _ in range(count)]
        with pymongo.MongoClient(nodes[0].uri) as client:
            client.bench.c.insert_many([{"_id": n, "n": 0, "text": "x" * 260} for n in range(DOCUMENTS)])
            client.bench.create_collection("w")
        yield etcd, nodes


@contextlib.contextmanager
def load(nodes, connections, make, seconds):
    """A load from a process of its own. Gives a function that waits for its end."""
    receiver, sender = multiprocessing.Pipe(False)
    ports = [node.port for node in nodes]
    worker = multiprocessing.Process(target=drive, args=(sender, ports, connections, make, seconds))
    worker.start()
    receiver.recv()
    yield receiver.recv
    worker.join()


def quantile(times, part):
    return sorted(times)[min(int(len(times) * part), len(times) - 1)]


def row_throughput(options):
    for name, make in [("insert", insert_one), ("update by _id", update_one), ("find by _id", find_by_id)]:
        for count in options.counts:
            with cluster_of(options.marula, count) as (etcd, nodes):
                rates, slowest, medians, own, stores = [], [], [], [], []
                pids = [node.process.pid for node in nodes], [process.pid for process in etcd.processes]
                for _ in range(options.runs):
                    before = [sum(map(cpu_s, group)) for group in pids]
                    with load(nodes, options.connections, make, options.seconds) as ended:
                        elapsed, done = ended()
                    own_s, store_s = (sum(map(cpu_s, group)) - was for group, was in zip(pids, before))
                    times = [took for _, took in done]
                    rates.append(len(done) / elapsed)
                    medians.append(quantile(times, 0.5) * 1e3)
                    slowest.append(quantile(times, 0.99) * 1e3)
                    own.append(own_s / len(done) * 1e6)
                    stores.append(store_s / len(done) * 1e6)
                middle = statistics.median
                print("%s, %d connections, %d processes: %.0f/s, median %.0f ms, p99 %.0f ms, CPU of an operation %.0f µs of Marula, "
                      "%.0f µs of etcd (runs: %s)" % (name, options.connections, count, middle(rates), middle(medians), middle(slowest),
                                                      middle(own), middle(stores), ["%.0f" % rate for rate in rates]), flush=True)


def leader(program, etcd):
    """The place of the server that leads."""
    shown = subprocess.run([program, "cluster", "status", *etcd.options(), "--json"], capture_output=True, text=True).stdout
    roles = {member["name"]: member["role"] for member in json.loads(shown)["members"]}
    return int(next(name for name, role in roles.items() if role == "leader")[1:])


def row_loss(options):
    """Inserts by 64 connections while the leader of etcd is killed."""
    until, after = 2 * options.seconds, max(2 * options.seconds, RECOVERY_S)
    for _ in range(options.runs):
        with cluster_of(options.marula, 3) as (etcd, nodes):
            killed = etcd.processes[leader(options.marula, etcd)]
            with load(nodes, min(options.connections, 64), insert_one, until + after) as ended:
                timer = threading.Timer(until, killed.kill)
                timer.start()
                _, done = ended()
            before = [took for at, took in done if at < until]
            during = [took for at, took in done if at >= until]
            assert during, "no insert was answered in the %.0f s after the loss" % after
            print("loss of etcd's leader, inserts by 64 connections, %.0f s before: %d, p99 %.0f ms; %.0f s after: %d, p99 %.0f ms, "
                  "slowest %.0f ms" % (until, len(before), quantile(before, 0.99) * 1e3, after, len(during),
                                       quantile(during, 0.99) * 1e3, max(during) * 1e3), flush=True)


ROWS = {"throughput": row_throughput, "loss": row_loss}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marula", required=True, help="the program")
    parser.add_argument("--rows", default=",".join(ROWS), help="a part of them (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of one measurement (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each measurement; medians are shown (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="everything, with tiny inputs")
    options = parser.parse_args()
    options.connections, options.counts = CONNECTIONS, (1, 2, 3)
    if options.smoke:
        options.seconds, options.runs, options.connections, options.counts = 0.5, 1, 16, (1, 3)
    for row in options.rows.split(","):
        ROWS[row](options)


if __name__ == "__main__":
    main()
