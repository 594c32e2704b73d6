"""A flipped bit in any file of a data folder is reported by `marula check`, or each document is what it was.

`MARULA_FLIPS` is the number of bits, `MARULA_SEED` the seed.
"""
import collections
import os
import random
import shutil
import subprocess

import pymongo
import pytest
import server

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="the files are Marula's"), pytest.mark.embedded]

FLIPS = int(os.environ.get("MARULA_FLIPS", "200"))
SEED = int(os.environ.get("MARULA_SEED", "5"))


def content(path):
    """All documents, by the collection and by the index; a server that has another log or other files than it should says so."""
    with server.Server(dbpath=path) as own:
        with pymongo.MongoClient(own.uri) as client:
            found = [list(client.t.c.find(sort=[(name, 1)], hint=[(name, 1)])) for name in ("_id", "a")]
            assert client.t.command("validate", "c", full=True)["valid"]
        own.terminate()
    return found


def test_a_flipped_bit_is_told_or_harms_nothing(tmp_path):
    path, other = str(tmp_path / "data"), str(tmp_path / "flipped")
    with server.Server(dbpath=path) as own:
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": i, "a": i % 7, "pad": os.urandom(50)} for i in range(2000)])
            client.t.c.create_index("a")
        own.kill()
        # Started again, the server writes its log into tables.
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            client.t.c.insert_many([{"_id": 10_000 + i} for i in range(50)])
        own.terminate()
    shutil.copytree(path, other)
    before = content(other)
    assert len(before[0]) == 2050
    shutil.rmtree(other)
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    files = sorted(os.path.relpath(name, path) for name in files if os.path.getsize(name))
    rng, outcomes = random.Random(SEED), collections.Counter()
    for _ in range(FLIPS):
        name = rng.choice(files)
        shutil.copytree(path, other)
        with open(os.path.join(other, name), "r+b") as f:
            at, bit = rng.randrange(os.path.getsize(f.name)), rng.randrange(8)
            f.seek(at)
            flipped = f.read(1)[0] ^ 1 << bit
            f.seek(at)
            f.write(bytes([flipped]))
        done = subprocess.run([server.serve_command()[0], "check", "--dbpath", other], capture_output=True, text=True,
                              timeout=120)
        said = "%s, bit %d of byte %d, seed %d: %s%s" % (name, bit, at, SEED, done.stdout, done.stderr)
        assert "panicked" not in said
        assert done.returncode in (0, 1), said
        if done.returncode == 0:
            assert content(other) == before, said
        kind = os.path.basename(name).rstrip("0123456789-")
        kind = "tables" if kind.endswith(".sst") else "log" if kind.endswith(".log") else kind
        outcomes["reported" if done.returncode else "harms nothing", kind] += 1
        shutil.rmtree(other)
    for (outcome, kind), count in sorted(outcomes.items()):
        print(outcome, kind, count)
    assert all(kind not in ("tables", "log") for outcome, kind in outcomes if outcome == "harms nothing"), outcomes
