"""A reader of stdout that has stopped does not stop the server: lines are dropped, and a later one has their number."""
import json
import signal
import subprocess

import pymongo
import pytest
import server

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="mongod waits for the reader of its stdout")


def test_a_full_pipe_does_not_block_the_server(tmp_path):
    port = server.free_port()
    command = [*server.serve_command(), "--dbpath", str(tmp_path / "d"), "--port", str(port), "--bind_ip", "127.0.0.1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        lines = []
        while not (lines and b"Waiting for connections" in lines[-1]):
            lines.append(process.stdout.readline())
        with pymongo.MongoClient(port=port) as client:
            client.admin.command("setParameter", 1, logComponentVerbosity={"verbosity": 0, "command": {"verbosity": 1}})
            # Each is a line with the whole command: some 12 MB.
            for i in range(3000):
                client.t.c.count_documents({"s": "x" * 4000})
            assert client.admin.command("getLog", "global")["totalLinesWritten"] > 3000
        process.send_signal(signal.SIGTERM)
        lines += process.stdout.read().splitlines()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
    whole = [json.loads(line) for line in lines if line.endswith(b"}") or line.endswith(b"}\n")]
    dropped = sum(line["attr"]["lines"] for line in whole if "dropped" in line["msg"])
    assert dropped > 0
