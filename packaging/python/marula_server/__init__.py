"""Starts a Marula server, a document database that speaks MongoDB's protocol, from Python.

    import marula_server
    from pymongo import MongoClient

    with marula_server.start() as server:
        MongoClient(server.uri).test.c.insert_one({"hello": "world"})

The data is in memory unless `dbpath` names a folder. A server takes some milliseconds to start, so that every test can
have one of its own. It ends with the `with` block, with `stop()`, and however this process ends.
"""
import os
import shutil
import subprocess
import tempfile
import time

__all__ = ["Server", "StartError", "binary", "start"]


class StartError(Exception):
    """The server did not start; the text is what it said."""


def binary():
    """The path of the program: that of this package, or `$MARULA_BIN`."""
    return os.environ.get("MARULA_BIN") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "marula")


def start(*args, dbpath=None, port=0, replica_set=None, timeout=30.0):
    """Starts a server and returns once it accepts connections.

    `args` are further options of `marula serve`; `port` 0 takes a free one. `replica_set` names a set whose only member
    the server is, for transactions and change streams; it is initiated, so that it can be written to at once.
    Raises StartError.
    """
    return Server(args, dbpath, port, replica_set, timeout)


class Server:
    """A running server: `uri`, `host`, `port`, `pid`."""

    def __init__(self, args, dbpath, port, replica_set, timeout):
        self._folder = tempfile.mkdtemp(prefix="marula-")
        ready = os.path.join(self._folder, "ready")
        words = [binary(), "serve", "--port", str(port), "--ready-file", ready, "--end-with-stdin"]
        words += ["--dbpath", os.fspath(dbpath)] if dbpath is not None else ["--storage-engine", "memory"]
        if replica_set is not None:
            words += ["--replSet", replica_set]
        self.log_path = os.path.join(self._folder, "log")
        self._process = None
        try:
            with open(self.log_path, "wb") as log:
                # The server ends when its standard input is closed, which the end of this process
                # does.
                self._process = subprocess.Popen(words + [os.fspath(arg) for arg in args], stdin=subprocess.PIPE,
                                                 stdout=log, stderr=log)
            self.host, self.port = self._wait(ready, timeout)
            self.pid = self._process.pid
        except BaseException:
            self.stop()
            raise
        self.uri = "mongodb://%s:%d/?" % (self.host, self.port)
        self.uri += "replicaSet=" + replica_set if replica_set is not None else "directConnection=true"

    def _wait(self, ready, timeout):
        until = time.monotonic() + timeout
        while not os.path.exists(ready):
            status = self._process.poll()
            if status is not None:
                raise StartError("the server ended with status %s: %s" % (status, self.log().strip()))
            if time.monotonic() > until:
                raise StartError("the server was not ready within %s s: %s" % (timeout, self.log().strip()))
            time.sleep(0.001)
        with open(ready, encoding="ascii") as file:
            host, _, port = file.readline().strip().rpartition(":")
        return host, int(port)

    def log(self):
        """The server's log so far."""
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except OSError:
            return ""

    def stop(self, timeout=30.0):
        """Ends the server and waits for it; what it has not finished within `timeout` seconds is killed."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process is not None and self._process.stdin:
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        return "<marula_server.Server %s>" % self.uri
