"""A server of the test's own: on a free port of the loopback, its data in a temporary folder, gone afterwards.

Standard library only, so that every suite can use it. The server is `$MARULA_BIN serve` (`make` sets it; the release
build otherwise). `$MARULA_SERVE` replaces the whole command, with a mongod for example, which proves the tests.
"""
import contextlib
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def serve_command():
    """The words that start a server, before its options."""
    if os.environ.get("MARULA_SERVE"):
        return shlex.split(os.environ["MARULA_SERVE"])
    binary = os.environ.get("MARULA_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "marula")
    return [binary, "serve"]


def is_mongod():
    """Whether another server stands in: the few tests of Marula's own ways are left out then."""
    return "mongod" in os.path.basename(serve_command()[0])


def keeps_no_folder():
    """Whether Marula's data is in none: under `$MARULA_SERVE` with `--storage-engine sim`, for example."""
    return not is_mongod() and "--storage-engine" in serve_command()


# Below the ports that systems give to outgoing connections: such a connection could take a port
# before its server listens.
PORTS = range(20000, 32768)
given_ports = set()


def free_port():
    """A port on which nobody listens, and which this process has not been given before."""
    for port in random.Random().sample(PORTS, len(PORTS)):
        with socket.socket() as s, contextlib.suppress(OSError):
            if port not in given_ports:
                s.bind(("127.0.0.1", port))
                given_ports.add(port)
                return port
    raise OSError("no port is free")


def wait_for_port(port, process, wait):
    """Waits until a port answers; returns whether it does before the process has ended and before time is up."""
    until = time.monotonic() + wait
    while process.poll() is None and time.monotonic() <= until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.005)
    return False


def prepared(name):
    """The path that `tools/setup` prints for a program; the test is skipped where it cannot be had."""
    # Benchmarks start servers too, and may run without pytest.
    import pytest
    found = subprocess.run([os.path.join(ROOT, "tools", "setup"), name], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip("there is no %s here: %s" % (name, found.stderr.strip()))
    return found.stdout.strip()


class Server:
    """One server process. `args` are further options; `dbpath` keeps the data where the caller wants it."""

    def __init__(self, *args, dbpath=None, port=None, preexec=None, wait=20.0):
        self.args, self.preexec = list(args), preexec
        self.port = port or free_port()
        self.own_folder = dbpath is None
        self.dbpath = dbpath or tempfile.mkdtemp(prefix="marula-test-")
        self.log = os.path.join(tempfile.gettempdir(), "marula-test-%d-%d.log" % (os.getpid(), self.port))
        self.process = None
        self.start(wait)

    @property
    def uri(self):
        return "mongodb://127.0.0.1:%d/?directConnection=true" % self.port

    def command(self):
        words = serve_command()
        if "--storage-engine" in self.args and "--storage-engine" in words:
            # A test that chooses an engine has its own.
            place = words.index("--storage-engine")
            del words[place:place + 2]
        return words + ["--dbpath", self.dbpath, "--port", str(self.port), "--bind_ip", "127.0.0.1",
                                  *self.args]

    def start(self, wait=20.0):
        """Starts and waits for the port to answer; returns the seconds that took."""
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=self.preexec)
        if wait_for_port(self.port, self.process, wait):
            return time.monotonic() - began
        if self.process.poll() is not None:
            raise RuntimeError("the server ended with %s:\n%s" % (self.process.returncode, self.tail()))
        self.kill()
        raise RuntimeError("the server did not listen within %.0f s:\n%s" % (wait, self.tail()))

    def kill(self):
        """As a crash would: no chance to finish anything."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def terminate(self, wait=30.0):
        """Asks it to end and returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError("the server did not end within %.0f s of SIGTERM:\n%s" % (wait, self.tail()))

    def tail(self, size=4000):
        try:
            with open(self.log, "rb") as log:
                return log.read()[-size:].decode("utf-8", "replace")
        except OSError:
            return ""

    def close(self):
        self.kill()
        if self.own_folder:
            shutil.rmtree(self.dbpath, ignore_errors=True)
        if os.path.exists(self.log):
            os.remove(self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
