"""Three etcd servers on the loopback, for tests of the engine that keeps its data in etcd."""
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request

import partitions
import pytest
import server


class Etcd:
    """Three etcd servers that are one cluster."""

    def __init__(self, binary, snapshot=None, network=None, tls=None):
        """Starts empty servers, or servers with the data of a snapshot, a file. They reach each other over a network, if one is
        given, where they are called n0, n1 and n2. With `tls`, a folder of certificates, they serve clients with a certificate."""
        self.binary = binary
        self.network = network
        self.tls = tls
        self.context = None
        secured = []
        if tls:
            self.context = ssl.create_default_context(cafile=tls.path("ca.pem"))
            self.context.load_cert_chain(tls.path("nameless.pem"))
            secured = ["--client-cert-auth", "--cert-file", tls.path("server.crt"), "--key-file", tls.path("server.key"),
                       "--trusted-ca-file", tls.path("ca.pem")]
        self.folder = tempfile.mkdtemp(prefix="marula-etcd-")
        self.clients = ["%s://127.0.0.1:%d" % ("https" if tls else "http", server.free_port()) for _ in range(3)]
        listening = ["http://127.0.0.1:%d" % server.free_port() for _ in range(3)]
        peers = listening
        if network:
            peers = ["http://127.0.0.1:%d" % network.way(partitions.sender, "n%d" % n, port_of(url))
                     for n, url in enumerate(listening)]
        cluster = ",".join("n%d=%s" % member for member in enumerate(peers))
        if snapshot:
            for n, peer in enumerate(peers):
                self.ctl("snapshot", "restore", snapshot, "--name", "n%d" % n, "--initial-cluster", cluster,
                         "--initial-advertise-peer-urls", peer, "--data-dir", os.path.join(self.folder, str(n)))
        self.processes = [
            subprocess.Popen(
                [binary, "--name", "n%d" % n, "--data-dir", os.path.join(self.folder, str(n)),
                 "--listen-client-urls", self.clients[n], "--advertise-client-urls", self.clients[n],
                 "--listen-peer-urls", listening[n], "--initial-advertise-peer-urls", peers[n],
                 "--initial-cluster", cluster, "--max-request-bytes", "10485760", "--max-txn-ops", "50000", *secured],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for n in range(3)]
        try:
            for url in self.clients:
                self.wait(url)
        except BaseException:
            self.close()
            raise
        if network:
            request = urllib.request.Request(self.clients[0] + "/v3/cluster/member/list", data=b"{}")
            for member in json.load(urllib.request.urlopen(request, timeout=10))["members"]:
                network.names["%x" % int(member["ID"])] = member["name"]

    def wait(self, url):
        until = time.monotonic() + 60
        while True:
            try:
                body = urllib.request.urlopen(url + "/health", timeout=2, context=self.context).read()
                if b'"true"' in body:
                    return
            except OSError:
                pass
            ended = [process.args for process in self.processes if process.poll() is not None]
            assert not ended, "etcd has ended: %s" % ended
            assert time.monotonic() < until, "etcd does not come up"
            time.sleep(0.05)

    def ctl(self, *words):
        """Runs etcdctl, from the folder of etcd; skips the test if it is not there."""
        program = os.path.join(os.path.dirname(self.binary), "etcdctl")
        if not os.access(program, os.X_OK):
            pytest.skip("there is no etcdctl here")
        if self.tls:
            words = ["--cacert", self.tls.path("ca.pem"), "--cert", self.tls.path("nameless.crt"), "--key", self.tls.path("nameless.key"),
                     "--endpoints", self.clients[0], *words]
        subprocess.run([program, *words], env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=60)

    def snapshot(self, file):
        """Saves a snapshot of the whole data."""
        self.ctl("--endpoints", self.clients[0], "snapshot", "save", file)

    def options(self, source=None):
        """The options of a server that keeps its data here, and reaches it over the network under the name `source`, if that is
        given."""
        urls = self.clients
        if source:
            urls = ["http://127.0.0.1:%d" % self.network.way(source, "n%d" % n, port_of(url)) for n, url in enumerate(urls)]
        return ["--storage-engine", "etcd", "--endpoints", ",".join(urls)]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def port_of(url):
    return int(url.rpartition(":")[2])


@contextlib.contextmanager
def start(**options):
    """The servers, until the end of the block; the test is skipped where there is no etcd."""
    cluster = Etcd(server.prepared("etcd"), **options)
    try:
        yield cluster
    finally:
        cluster.close()
