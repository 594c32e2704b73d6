"""Three etcd servers on the loopback, for tests of the engine that keeps its data in etcd."""
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

import pytest
import server


class Etcd:
    """Three etcd servers that are one cluster."""

    def __init__(self, binary, snapshot=None):
        """Starts empty servers, or servers with the data of a snapshot, a file."""
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="marula-etcd-")
        self.clients = ["http://127.0.0.1:%d" % server.free_port() for _ in range(3)]
        peers = ["http://127.0.0.1:%d" % server.free_port() for _ in range(3)]
        cluster = ",".join("n%d=%s" % member for member in enumerate(peers))
        if snapshot:
            for n, peer in enumerate(peers):
                self.ctl("snapshot", "restore", snapshot, "--name", "n%d" % n, "--initial-cluster", cluster,
                         "--initial-advertise-peer-urls", peer, "--data-dir", os.path.join(self.folder, str(n)))
        self.processes = [
            subprocess.Popen(
                [binary, "--name", "n%d" % n, "--data-dir", os.path.join(self.folder, str(n)),
                 "--listen-client-urls", self.clients[n], "--advertise-client-urls", self.clients[n],
                 "--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n],
                 "--initial-cluster", cluster, "--max-request-bytes", "10485760", "--max-txn-ops", "50000"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for n in range(3)]
        for url in self.clients:
            self.wait(url)

    @staticmethod
    def wait(url):
        until = time.monotonic() + 60
        while True:
            try:
                body = urllib.request.urlopen(url + "/health", timeout=2).read()
                if b'"true"' in body:
                    return
            except OSError:
                pass
            assert time.monotonic() < until, "etcd does not come up"
            time.sleep(0.05)

    def ctl(self, *words):
        """Runs etcdctl, from the folder of etcd; skips the test if it is not there."""
        program = os.path.join(os.path.dirname(self.binary), "etcdctl")
        if not os.access(program, os.X_OK):
            pytest.skip("there is no etcdctl here")
        subprocess.run([program, *words], env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=60)

    def snapshot(self, file):
        """Saves a snapshot of the whole data."""
        self.ctl("--endpoints", self.clients[0], "snapshot", "save", file)

    def options(self):
        """The options of a server that keeps its data here."""
        return ["--storage-engine", "etcd", "--endpoints", ",".join(self.clients)]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def start(snapshot=None):
    """The servers, until the end of the block, with the data of a snapshot if one is given; the test is skipped where there
    is no etcd."""
    found = subprocess.run([os.path.join(server.ROOT, "tools", "setup"), "etcd"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip("there is no etcd here: " + found.stderr.strip())
    cluster = Etcd(found.stdout.strip(), snapshot)
    try:
        yield cluster
    finally:
        cluster.close()
