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

    def __init__(self, binary):
        self.folder = tempfile.mkdtemp(prefix="marula-etcd-")
        self.clients = ["http://127.0.0.1:%d" % server.free_port() for _ in range(3)]
        peers = ["http://127.0.0.1:%d" % server.free_port() for _ in range(3)]
        cluster = ",".join("n%d=%s" % member for member in enumerate(peers))
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

    def options(self):
        """The options of a server that keeps its data here."""
        return ["--storage-engine", "etcd", "--endpoints", ",".join(self.clients)]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def start():
    """The servers, until the end of the block; the test is skipped where there is no etcd."""
    found = subprocess.run([os.path.join(server.ROOT, "tools", "setup"), "etcd"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip("there is no etcd here: " + found.stderr.strip())
    cluster = Etcd(found.stdout.strip())
    try:
        yield cluster
    finally:
        cluster.close()
