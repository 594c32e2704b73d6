"""A flipped bit in any file of a data folder is reported by `marula check`, or nothing is missing.

`MARULA_FLIPS` is the number of bits, `MARULA_SEED` the seed.
"""
import os
import random
import subprocess

import pymongo
import pytest
import server

pytestmark = pytest.mark.skipif(server.is_mongod(), reason="the files are Marula's")

FLIPS = int(os.environ.get("MARULA_FLIPS", "80"))
SEED = int(os.environ.get("MARULA_SEED", "5"))


def test_a_flipped_bit_is_told_or_harms_nothing(tmp_path):
    path = str(tmp_path / "data")
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
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    files = sorted(name for name in files if os.path.getsize(name))
    rng = random.Random(SEED)
    for _ in range(FLIPS):
        name = rng.choice(files)
        with open(name, "rb") as f:
            content = f.read()
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        with open(name, "wb") as f:
            f.write(flipped)
        done = subprocess.run([server.serve_command()[0], "check", "--dbpath", path], capture_output=True, text=True,
                              timeout=120)
        with open(name, "wb") as f:
            f.write(content)
        said = "%s, bit %d of byte %d, seed %d: %s%s" % (name, bit, at, SEED, done.stdout, done.stderr)
        assert "panicked" not in said
        assert done.returncode in (0, 1), said
        assert done.returncode == 1 or "1 collections, 2050 documents, 0 faults" in done.stdout, said
