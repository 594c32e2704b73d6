"""Every file of a data folder is damaged in turn: the server says so, or the data is whole; it is never wrong silently.

Two folders: one of a server that was ended, and one of a server that was killed after acknowledged writes.
MARULA_DAMAGE=all damages each file in every way and prints the table of docs/file-formats.md; without it, each file in
three ways.
"""
import collections
import os
import shutil

import pymongo
import pytest
import server
from bson import Decimal128
from pymongo.errors import ConnectionFailure, OperationFailure

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="the files are Marula's"), pytest.mark.embedded]

COUNT = 1500


def flipped(content, part):
    damaged = bytearray(content)
    damaged[min(int(len(damaged) * part), len(damaged) - 1)] ^= 0x10
    return bytes(damaged)


def zeroed(content):
    at = len(content) // 2
    return content[:at] + bytes(min(4096, len(content) - at)) + content[at + 4096:]


# What is left of a file; None if it is gone.
DAMAGES = {
    "a bit flipped in the middle": lambda content: flipped(content, 0.5),
    "cut to a half": lambda content: content[:len(content) // 2],
    "removed": lambda content: None,
    "a bit flipped at the start": lambda content: flipped(content, 0),
    "a bit flipped at the end": lambda content: flipped(content, 1),
    "a page of zeros": zeroed,
    "emptied": lambda content: b"",
    "other bytes": lambda content: bytes(i * 37 % 251 for i in range(len(content))),
    "one byte more": lambda content: content + b"\x01",
}
IS_ALL = os.environ.get("MARULA_DAMAGE") == "all"
WAYS = list(DAMAGES) if IS_ALL else list(DAMAGES)[:3]


def documents():
    return [{"_id": i, "a": i % 97, "text": "text %d" % (i * i), "price": Decimal128(str(i / 4)), "list": [i, {"n": -i}]}
            for i in range(COUNT)]


def fill(client):
    client.t.c.insert_many(documents())
    client.t.c.create_index([("a", 1), ("_id", -1)])
    client.t.c.create_index("text", unique=True)
    client.t.create_collection("capped", capped=True, size=1 << 20)
    client.t.capped.insert_many(documents()[:100])
    client.other.view_of.insert_one({"_id": "x", "of": documents()[:3]})
    client.other.command("create", "view", viewOn="view_of", pipeline=[{"$project": {"of": 0}}])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The two folders by name."""
    made = {}
    for name in ("ended", "killed"):
        path = str(tmp_path_factory.mktemp(name) / "data")
        with server.Server(dbpath=path) as own:
            with pymongo.MongoClient(own.uri, journal=True) as client:
                fill(client)
            if name == "ended":
                own.terminate()
                # Started again, so that its data is in tables.
                own.start()
                own.terminate()
            else:
                own.kill()
        made[name] = path
    yield made
    for path in made.values():
        shutil.rmtree(path)


def files_of(path):
    return sorted(os.path.relpath(os.path.join(folder, name), path) for folder, _, names in os.walk(path) for name in names)


def kind_of(name):
    """A file's name without its number."""
    base = os.path.basename(name)
    if base.endswith((".sst", ".log")):
        return "store/*" + base[base.rindex("."):]
    return name.split("-")[0] + "-*" if "-" in base else name


def read_all(client):
    expected = documents()
    assert list(client.t.c.find().sort("$natural", 1)) == expected
    assert [d["_id"] for d in client.t.c.find({"a": {"$gte": 0}}, {"_id": 1}).hint("a_1__id_-1")] \
        == sorted(range(COUNT), key=lambda i: (i % 97, -i))
    assert client.t.c.count_documents({"text": {"$gte": "text"}}, hint="text_1") == COUNT
    assert list(client.t.capped.find()) == expected[:100]
    assert list(client.other.view.find()) == [{"_id": "x"}]
    assert client.t.command("collStats", "c")["count"] == COUNT
    for name in ("c", "capped"):
        # What `validate` finds wrong it says in its reply.
        if not client.t.command("validate", name, full=True)["valid"]:
            raise OperationFailure("invalid", details={"errmsg": "validate"})


def outcome(path):
    """What a server makes of a folder: 'refused', 'an error' when it is read, or 'whole'."""
    try:
        own = server.Server(dbpath=path)
    except RuntimeError as refused:
        return refusal(path, str(refused))
    with own, pymongo.MongoClient(own.uri, serverSelectionTimeoutMS=200) as client:
        # It listens before its data is open.
        while True:
            try:
                client.admin.command("ping")
                break
            except ConnectionFailure:
                if own.process.poll() is not None:
                    return refusal(path, "the server ended with %d:\n%s" % (own.process.returncode, own.tail()))
        try:
            read_all(client)
            return "whole"
        except OperationFailure as error:
            assert error.details.get("errmsg"), error
            return "an error"
        finally:
            assert "panicked" not in own.tail(1 << 20)


def refusal(path, said):
    assert "the server ended with 1:" in said and "panicked" not in said and path in said, said
    return "refused"


def test_every_file_is_damaged_in_turn(folders, tmp_path):
    found = collections.defaultdict(collections.Counter)
    for state, path in folders.items():
        for name in files_of(path):
            with open(os.path.join(path, name), "rb") as file:
                content = file.read()
            for way in WAYS:
                left = DAMAGES[way](content) if content or way in ("removed", "one byte more") else content
                if left == content:
                    continue
                copy = str(tmp_path / "data")
                shutil.copytree(path, copy)
                os.remove(os.path.join(copy, name))
                if left is not None:
                    with open(os.path.join(copy, name), "wb") as file:
                        file.write(left)
                try:
                    found[kind_of(name), state][outcome(copy)] += 1
                except AssertionError as error:
                    raise AssertionError("%s, %s, after it was %s" % (name, way, state)) from error
                finally:
                    shutil.rmtree(copy)
    if IS_ALL:
        print()
        for (name, state), counts in sorted(found.items()):
            print("| `%s` | %s | %s |" % (name, state, " | ".join(
                str(counts[it] or "") for it in ("refused", "an error", "whole"))))
    # What holds documents is never left out.
    assert found["store/*.sst", "ended"]["an error"] and found["store/*.log", "killed"]["refused"]
