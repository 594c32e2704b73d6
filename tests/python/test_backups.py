"""Backups: made of running servers and of folders, kept in folders and in an object store, verified, restored to a
backup or to a moment, pruned; with and without encryption; and what is said of everything that is broken.
"""
import base64
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pymongo
import pytest
import server
from backups import PROGRAM, at, backup, ids, now_us, refusal, restored, state, wait_for, wait_for_log
from object_stores import STORES
from pymongo.errors import OperationFailure

pytestmark = [pytest.mark.skipif(server.is_mongod(), reason="backups are Marula's own"), pytest.mark.embedded]


@pytest.fixture
def keys(tmp_path):
    """Key files of the three forms."""
    bits = bytes(range(32))
    forms = {"raw": bits, "hex": bits.hex().encode() + b"\n", "base64": base64.b64encode(bits) + b"\n",
             "other": os.urandom(32), "short": b"secret"}
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in forms}


def fill(db, count=500, seed=1):
    """Documents with indexes of several kinds, changed and removed in part."""
    rng = random.Random(seed)
    documents = [{"_id": n, "n": rng.randrange(1000), "tags": [rng.randrange(9) for _ in range(3)],
                  "text": "%x" % rng.getrandbits(2000)} for n in range(count)]
    db.c.insert_many(documents)
    db.c.create_index("n")
    db.c.create_index([("tags", 1), ("n", -1)])
    db.c.update_many({"n": {"$lt": 300}}, {"$inc": {"n": 5}, "$push": {"tags": 11}})
    db.c.delete_many({"n": {"$gt": 900}})
    db.create_collection("capped", capped=True, size=4096)
    db.capped.insert_many([{"n": n} for n in range(100)])
    db.command("create", "view", viewOn="c", pipeline=[{"$match": {"n": 1}}])


@pytest.mark.parametrize("form", [None, "base64"])
def test_a_backup_of_a_server_comes_back(tmp_path, keys, form):
    key = ["--key-file", keys[form]] if form else []
    target, host = tmp_path / "backups", []
    with server.Server() as own:
        host = ["--host", "127.0.0.1:%d" % own.port]
        with pymongo.MongoClient(own.uri) as client:
            fill(client.one)
            assert "sent" in backup("create", target, *host, *key)
            before = state(own.uri)
            fill(client.two, 50, 2)
            backup("create", target, *host, *key)
            after = state(own.uri)
            backup("create", target, "--full", *host, *key)
    names = ids(target, *key)
    assert len(names) == 3
    assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
    assert backup("verify", target, "--all", "--objects-only", *key).count("every object is what it was") == 3
    for name, expected in zip(names, (before, after, after)):
        with restored(target, tmp_path / name, "--backup", name, *key) as copy:
            assert state(copy.uri) == expected
    stored = b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())
    assert (b"marula data folder" in stored) == (form is None), "an encrypted repository tells nothing"
    if form:
        # The other forms of the same key.
        assert ids(target, "--key-file", keys["hex"]) == ids(target, "--key-file", keys["raw"]) == names


def test_only_new_files_travel(tmp_path):
    import json
    target = tmp_path / "backups"
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        host = ["--host", "127.0.0.1:%d" % own.port]
        client.db.c.insert_many([{"_id": n, "x": os.urandom(2000)} for n in range(2000)])
        backup("create", target, *host)
        client.db.c.insert_one({"_id": -1})
        backup("create", target, *host)
    first, second = [json.loads(line) for line in backup("list", target, "--json").splitlines()]
    assert first["sent_bytes"] > 3_000_000
    assert second["sent_bytes"] < 200_000, "the tables of before are not sent again"
    assert second["bytes"] > 3_000_000


def test_a_folder_that_no_server_has(tmp_path):
    target = tmp_path / "backups"
    with server.Server() as own:
        with pymongo.MongoClient(own.uri) as client:
            fill(client.one)
        before = state(own.uri)
        assert "another process" in backup("create", target, "--dbpath", own.dbpath, fails=True)
        # A folder that a crash has left is one, too: its log is part of it.
        own.kill()
        before_files = sorted(os.listdir(own.dbpath))
        backup("create", target, "--dbpath", own.dbpath)
        assert sorted(os.listdir(own.dbpath)) == before_files, "the folder is only read"
    with restored(target, tmp_path / "copy") as copy:
        assert state(copy.uri) == before


def test_writes_go_on_while_a_backup_is_made(tmp_path):
    """Writes acknowledged before the backup started are in it; its documents are whole, with indexes and counters."""
    target = tmp_path / "backups"
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        client.db.c.create_index("n")
        client.db.c.insert_many([{"_id": -1 - n, "n": n, "x": os.urandom(1000)} for n in range(3000)])
        acknowledged, is_over = [0] * 4, threading.Event()

        def write(writer):
            number = 0
            while not is_over.is_set():
                documents = [{"_id": number * 4 + writer, "n": number}, {"_id": "twin %d %d" % (writer, number), "n": -1}]
                client.db.c.insert_many(documents[:1])
                client.db.twins.insert_many(documents[1:])
                number += 1
                acknowledged[writer] = number

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        [writer.start() for writer in writers]
        wait_for(lambda: min(acknowledged) > 20)
        before = list(acknowledged)
        backup("create", target, "--host", "127.0.0.1:%d" % own.port)
        after = [count + 1 for count in acknowledged]
        is_over.set()
        [writer.join() for writer in writers]
    with restored(target, tmp_path / "copy") as copy, pymongo.MongoClient(copy.uri) as client:
        state(copy.uri)
        for writer in range(4):
            there = client.db.c.count_documents({"_id": {"$gte": 0, "$mod": [4, writer]}})
            twins = client.db.twins.count_documents({"_id": {"$regex": "^twin %d " % writer}})
            assert before[writer] <= there <= after[writer]
            assert 0 <= there - twins <= 1, "the second of two writes is not there without the first"


class Writer(threading.Thread):
    """Inserts numbers and notes when each insert began and was acknowledged."""

    def __init__(self, uri):
        super().__init__(daemon=True)
        self.uri, self.times, self.is_over = uri, [], threading.Event()

    def run(self):
        with pymongo.MongoClient(self.uri, retryWrites=False) as client:
            while not self.is_over.is_set():
                began = now_us()
                try:
                    client.db.log.insert_one({"_id": len(self.times), "n": len(self.times) % 7})
                except pymongo.errors.PyMongoError:
                    return
                self.times.append((began, now_us()))

    def check(self, uri, moment):
        with pymongo.MongoClient(uri) as client:
            found = [doc["_id"] for doc in client.db.log.find().sort("_id", 1)]
        assert found == list(range(len(found))), "a prefix"
        acknowledged = sum(ended < moment for _, ended in self.times)
        began = sum(began <= moment for began, _ in self.times)
        assert acknowledged <= len(found) <= began, (acknowledged, len(found), began)


def schedule(target, *args):
    return ["--backup-to", str(target), "--backup-every", "1h", "--backup-log-every", "1s", *args]


@pytest.mark.parametrize("form", [None, "hex"])
def test_every_moment_comes_back(tmp_path, keys, form):
    target = tmp_path / "backups"
    key = ["--key-file", keys[form]] if form else []
    moments = []

    def note(uri, expected=None):
        # No write is in progress now: the moment has exactly one state.
        time.sleep(0.005)
        moments.append((now_us(), expected or state(uri)))
        time.sleep(0.005)

    options = schedule(target, *(["--backup-key-file", keys[form]] if form else []))
    with server.Server(*options) as own:
        with pymongo.MongoClient(own.uri) as client:
            wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
            client.db.log.create_index("n")
            writer = Writer(own.uri)
            writer.start()
            fill(client.one)
            wait_for(lambda: len(writer.times) > 50)
            writer.is_over.set()
            writer.join()
            note(own.uri)
            client.one.c.drop_indexes()
            client.one.c.create_index([("text", 1)])
            note(own.uri)
            client.one.c.drop()
            note(own.uri)
            with client.start_session() as session, session.start_transaction():
                client.two.c.insert_many([{"_id": n} for n in range(10)], session=session)
                client.two.d.insert_one({"_id": 1}, session=session)
            note(own.uri)
            client.drop_database("one")
            note(own.uri)
        wait_for_log(own.uri, moments[-1][0])
        # A crash, and the same run of the log goes on.
        own.kill()
        own.start()
        with pymongo.MongoClient(own.uri) as client:
            client.after.c.insert_one({"_id": 1})
            note(own.uri)
        assert own.terminate() == 0
    stretches = [line for line in backup("list", target, *key).splitlines() if line.startswith("every moment")]
    assert len(stretches) == 1, stretches
    for number, (moment, expected) in enumerate(moments):
        with restored(target, tmp_path / str(number), "--at", at(moment), *key) as copy:
            assert state(copy.uri) == expected, number
    began, ended = writer.times[0][0], writer.times[-1][1]
    for number in range(4):
        moment = began + (ended - began) * (number + 1) // 5
        with restored(target, tmp_path / ("w%d" % number), "--at", at(moment), *key) as copy:
            writer.check(copy.uri, moment)
    with restored(target, tmp_path / "latest", *key) as copy:
        assert state(copy.uri) == moments[-1][1], "what is not said is the newest"
    for moment in ("2001-01-01 00:00", at(now_us() + 3_600_000_000)):
        assert "do not reach" in backup("restore", target, "--to", tmp_path / "no", "--at", moment, *key, fails=True)
    assert not (tmp_path / "no").exists()
    assert "0 faults" in backup("verify", target, "--at", at(moments[1][0]), *key, "--temp", tmp_path)


def test_a_server_killed_before_it_sends_its_log_leaves_no_gap(tmp_path):
    """The next start sends what the run has had since its backup."""
    target, moments = tmp_path / "backups", []
    options = ["--backup-to", str(target), "--backup-every", "1h", "--backup-log-every", "1h"]
    with server.Server(*options, dbpath=str(tmp_path / "data")) as own:
        for number in range(3):
            with pymongo.MongoClient(own.uri) as client:
                wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
                client.db.c.insert_one({"_id": number})
            time.sleep(0.003)
            moments.append((now_us(), state(own.uri)))
            time.sleep(0.003)
            own.kill()
            own.start()
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("ping")
        assert own.terminate() == 0
    stretches = [line for line in backup("list", target).splitlines() if line.startswith("every moment")]
    assert len(stretches) == 1, stretches
    for number, (moment, expected) in enumerate(moments):
        with restored(target, tmp_path / str(number), "--at", at(moment)) as copy:
            assert state(copy.uri) == expected, number


def test_a_run_without_backups_is_a_hole(tmp_path):
    """Moments of a time in which the log was not sent are refused; those before and after are there."""
    target = tmp_path / "backups"
    folder = str(tmp_path / "data")
    moments = []
    for number, options in enumerate((schedule(target), [], schedule(target))):
        with server.Server(*options, dbpath=folder) as own:
            with pymongo.MongoClient(own.uri) as client:
                if options:
                    wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
                client.db.c.insert_one({"_id": number})
                time.sleep(0.01)
                moments.append(now_us())
                time.sleep(0.01)
            assert own.terminate() == 0
    for number, moment in enumerate(moments):
        to = tmp_path / str(number)
        if number == 1:
            assert "do not reach" in backup("restore", target, "--to", to, "--at", at(moment), fails=True)
            continue
        with restored(target, to, "--at", at(moment)) as copy, pymongo.MongoClient(copy.uri) as client:
            assert [doc["_id"] for doc in client.db.c.find()] == list(range(number + 1))


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    """A server that speaks the protocol of an object store: the scheme of its addresses, and what points at it."""
    with STORES[request.param](tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.mark.parametrize("form", [None, "raw"])
def test_an_object_store_holds_backups(tmp_path, keys, store, monkeypatch, form):
    key = ["--key-file", keys[form]] if form else []
    scheme, variables = store
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    target = "%s://bucket/%s/backups" % (scheme, form)
    options = schedule(target, *(["--backup-key-file", keys[form]] if form else []))
    with server.Server(*options) as own, pymongo.MongoClient(own.uri) as client:
        wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
        fill(client.one)
        before, moment = state(own.uri), now_us()
        time.sleep(0.01)
        client.one.c.delete_many({})
        backup("create", target, "--host", "127.0.0.1:%d" % own.port, *key)
        after = state(own.uri)
        client.close()
        assert own.terminate() == 0
    assert len(ids(target, *key)) == 2
    with restored(target, tmp_path / "moment", "--at", at(moment), *key) as copy:
        assert state(copy.uri) == before
    with restored(target, tmp_path / "latest", *key) as copy:
        assert state(copy.uri) == after
    assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
    assert "1 backups went" in backup("prune", target, "--keep", "0s", *key)
    assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
    for broken in ("%s://bucket/other", "%s://nowhere/x"):
        assert "there are no backups" in backup("list", broken % scheme, *key, fails=True)
    nowhere = "%s://nowhere/x" % scheme
    assert "could not" in backup("create", nowhere, "--dbpath", tmp_path / "latest", *key, fails=True)


def test_keys_that_are_wrong_are_told(tmp_path, keys):
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    with server.Server() as own:
        host = ["--host", "127.0.0.1:%d" % own.port]
        backup("create", plain, *host)
        backup("create", sealed, *host, "--key-file", keys["raw"])
        for target, key, words in [
            (sealed, None, "say --key-file"), (sealed, "other", "another key"), (sealed, "short", "holds no key"),
            (plain, "raw", "not encrypted"), (plain, "missing", "cannot read key file"),
        ]:
            key = ["--key-file", keys.get(key, "/nowhere")] if key else []
            for command in (["list", target], ["verify", target], ["restore", target, "--to", tmp_path / "x"],
                            ["prune", target, "--keep", "1d"], ["create", target, *host]):
                assert words in backup(*command, *key, fails=True), command
    assert not (tmp_path / "x").exists()


def test_damage_is_told(tmp_path, keys):
    """Whatever is changed, cut off or missing: a line says so, and other backups are as they were."""
    for form in (None, "raw"):
        key = ["--key-file", keys[form]] if form else []
        target, folder = tmp_path / ("t%s" % form), tmp_path / ("d%s" % form)
        options = schedule(target, *(["--backup-key-file", keys[form]] if form else []))
        with server.Server(*options, dbpath=str(folder)) as own, pymongo.MongoClient(own.uri) as client:
            wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
            fill(client.one, 50)
            client.close()
            assert own.terminate() == 0
        assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
        files = [path for path in target.rglob("*") if path.is_file()]
        kinds = {"objects", "backups", "log", "repository.json"}
        for kind in kinds:
            of_kind = [path for path in files if str(path.relative_to(target)).startswith(kind)]
            assert of_kind, kind
            path = max(of_kind, key=lambda path: path.stat().st_size)
            whole = path.read_bytes()
            for damage in ("changed", "cut", "empty", "missing"):
                if damage == "missing":
                    path.unlink()
                else:
                    middle = len(whole) // 2
                    path.write_bytes({"changed": whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1:],
                                      "cut": whole[:-3], "empty": b""}[damage])
                said = backup("restore", target, "--to", tmp_path / "x", *key, fails=True)
                assert "panicked" not in said and len(said) < 2000, said
                backup("verify", target, *key, "--temp", tmp_path, fails=True)
                shutil.rmtree(tmp_path / "x", ignore_errors=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(whole)
        assert "0 faults" in backup("verify", target, *key, "--temp", tmp_path)
        assert not [name for name in os.listdir(tmp_path) if name.startswith("marula-verify")]


def test_a_full_backup_mends_objects(tmp_path):
    target = tmp_path / "backups"
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        host = ["--host", "127.0.0.1:%d" % own.port]
        fill(client.one)
        backup("create", target, *host)
        largest = max((target / "objects").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
        largest.write_bytes(b"x")
        backup("verify", target, "--temp", tmp_path, fails=True)
        backup("create", target, "--full", *host)
        assert backup("verify", target, "--all", "--temp", tmp_path).count("0 faults") == 2


def test_a_restore_takes_no_folder_that_holds_something(tmp_path):
    target = tmp_path / "backups"
    with server.Server() as own:
        backup("create", target, "--host", "127.0.0.1:%d" % own.port)
        assert "it holds" in backup("restore", target, "--to", own.dbpath, fails=True)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / ".hidden").write_text("mine")
    assert ".hidden" in backup("restore", target, "--to", notes, fails=True)
    assert (notes / ".hidden").read_text() == "mine" and len(os.listdir(notes)) == 1
    to = tmp_path / "to"
    backup("restore", target, "--to", to)
    assert "it holds" in backup("restore", target, "--to", to, fails=True)
    with server.Server(dbpath=str(to)):
        pass


def test_a_restore_that_is_killed_is_no_data_folder_and_can_be_said_again(tmp_path):
    target, rng = tmp_path / "backups", random.Random(5)
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        client.db.c.insert_many([{"_id": n, "x": os.urandom(4000)} for n in range(5000)])
        backup("create", target, "--host", "127.0.0.1:%d" % own.port)
        expected = state(own.uri)
    to = tmp_path / "to"
    for _ in range(6):
        process = subprocess.Popen([PROGRAM, "backup", "restore", str(target), "--to", str(to)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        process.wait()
        if (to / "MARULA").exists():
            break
        if to.exists() and os.listdir(to):
            assert "not empty" in refusal(to)
    if not (to / "MARULA").exists():
        backup("restore", target, "--to", to)
    with server.Server(dbpath=str(to)) as copy:
        assert state(copy.uri) == expected


def test_a_program_that_is_killed_ends_its_backup(tmp_path):
    target = tmp_path / "backups"
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        client.db.c.insert_many([{"_id": n, "x": os.urandom(8000)} for n in range(8000)])
        host = ["--host", "127.0.0.1:%d" % own.port]
        process = subprocess.Popen([PROGRAM, "backup", "create", str(target), *host])
        wait_for(lambda: process.poll() is not None or "running" in client.admin.command("backupStatus"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: "running" not in client.admin.command("backupStatus"))
        assert not os.listdir(os.path.join(own.dbpath, "backup")), "no checkpoint is left"
        backup("create", target, *host)
        assert "0 faults" in backup("verify", target, "--temp", tmp_path)


def test_a_backup_asked_for_continues_in_the_log_however_its_target_is_written(tmp_path):
    target = tmp_path / "backups"
    (tmp_path / "link").symlink_to(target)
    with server.Server(*schedule(target)) as own, pymongo.MongoClient(own.uri) as client:
        wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
        for address in [target, "%s/../backups/" % target, tmp_path / "link", "file://%s" % target]:
            made = ids(target)
            backup("create", address, "--host", "127.0.0.1:%d" % own.port)
            (new,) = set(ids(target)) - set(made)
            assert json.loads((target / "backups" / (new + ".json")).read_text().splitlines()[0])["log"], address


def test_old_backups_go_and_the_rest_stays_whole(tmp_path):
    target = tmp_path / "backups"
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        host = ["--host", "127.0.0.1:%d" % own.port]
        for number in range(4):
            client.db.c.insert_one({"_id": number, "x": os.urandom(100_000)})
            backup("create", target, *host)
        names = ids(target)
        assert "3 backups would go" in backup("prune", target, "--keep", "0s", "--dry-run")
        assert ids(target) == names
        assert "0 backups went" in backup("prune", target, "--keep", "1h")
        assert "2 backups went" in backup("prune", target, "--keep", "0s", "--keep-last", "2")
        assert ids(target) == names[2:]
        assert "0 objects" in backup("prune", target, "--keep", "0s", "--keep-last", "2")
        assert backup("verify", target, "--all", "--temp", tmp_path).count("0 faults") == 2
        assert "there is no backup" in backup("restore", target, "--to", tmp_path / "x", "--backup", names[0], fails=True)


def test_the_schedule_prunes_by_itself(tmp_path):
    target = tmp_path / "backups"
    options = ["--backup-to", str(target), "--backup-every", "1s", "--backup-keep", "2s", "--backup-log-every", "1s"]
    with server.Server(*options) as own, pymongo.MongoClient(own.uri) as client:
        seen = set()

        def many():
            client.db.c.insert_one({})
            seen.update(ids(target) if (target / "repository.json").exists() else [])
            return len(seen) >= 5
        wait_for(many, 120)
        client.close()
        assert own.terminate() == 0
    assert len(ids(target)) < 5
    assert "0 faults" in backup("verify", target, "--temp", tmp_path)


def test_who_may_ask_for_a_backup(tmp_path):
    target = tmp_path / "backups"
    with server.Server("--auth") as own:
        with pymongo.MongoClient(own.uri) as client:
            client.admin.command("createUser", "root", pwd="r,o=ot", roles=["root"])
        root = "mongodb://root:r%%2Co%%3Dot@127.0.0.1:%d/" % own.port
        with pymongo.MongoClient(root) as client:
            for role in ("backup", "readAnyDatabase", "clusterMonitor"):
                client.admin.command("createUser", role, pwd="päss", roles=[role])
        for role, words in [("readAnyDatabase", "not authorized"), ("clusterMonitor", "not authorized")]:
            uri = "mongodb://%s:p%%C3%%A4ss@127.0.0.1:%d/?authSource=admin" % (role, own.port)
            assert words in backup("create", target, "--uri", uri, fails=True)
        host = ["--host", "127.0.0.1:%d" % own.port]
        assert "requires authentication" in backup("create", target, *host, fails=True)
        assert "to be in the variable" in backup("create", target, *host, "--username", "backup", fails=True)
        wrong = {"MARULA_PASSWORD": "wrong"}
        assert "cannot sign in" in backup("create", target, *host, "--username", "backup", env=wrong, fails=True)
        assert not target.exists()
        backup("create", target, *host, "--username", "backup", env={"MARULA_PASSWORD": "päss"})
        backup("create", target, "--uri", root)
        assert len(ids(target)) == 2


def test_the_command_is_ended_by_what_ends_commands(tmp_path):
    with server.Server() as own, pymongo.MongoClient(own.uri) as client:
        client.db.c.insert_many([{"_id": n, "x": os.urandom(8000)} for n in range(8000)])
        with pytest.raises(OperationFailure) as error:
            client.admin.command("backup", to=str(tmp_path / "t"), maxTimeMS=1)
        assert error.value.code == 50
        with pytest.raises(OperationFailure) as error:
            client.admin.command("backup")
        assert error.value.code == 2
        for fields, code in [({"to": 5}, 14), ({"to": "s3://"}, 2), ({"nope": 1}, 40415)]:
            with pytest.raises(OperationFailure) as error:
                client.admin.command("backup", **fields)
            assert error.value.code == code, fields
        with pytest.raises(OperationFailure) as error:
            client.db.command("backup", to=str(tmp_path / "t"))
        assert error.value.code == 13
    with server.Server("--storage-engine", "memory") as own, pymongo.MongoClient(own.uri) as client:
        with pytest.raises(OperationFailure) as error:
            client.admin.command("backup", to=str(tmp_path / "t"))
        assert error.value.code == 115


def test_files_can_be_copied_while_writes_are_locked(tmp_path):
    """fsync with lock: true, a copy file by file while tables would be merged, and the copy is whole."""
    with server.Server("--cache-size", "256MB") as own, pymongo.MongoClient(own.uri) as client:
        for turn in range(6):
            client.db.c.insert_many([{"_id": turn * 5000 + n, "n": n, "x": os.urandom(1500)} for n in range(5000)])
        client.db.c.create_index("n")
        client.db.dropped.insert_many([{"x": os.urandom(1500)} for _ in range(5000)])
        client.db.dropped.drop()
        client.admin.command("fsync", lock=True)
        expected = state(own.uri)
        waiting = threading.Thread(target=lambda: client.db.c.insert_one({"_id": "later"}))
        waiting.start()
        copy = tmp_path / "copy"
        for root, _, names in os.walk(own.dbpath):
            (copy / os.path.relpath(root, own.dbpath)).mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copy(os.path.join(root, name), copy / os.path.relpath(root, own.dbpath) / name)
                time.sleep(0.02)
        assert client.admin.command("fsyncUnlock")["lockCount"] == 0
        waiting.join()
        assert client.db.c.find_one({"_id": "later"})
        client.db.c.insert_many([{"x": os.urandom(1500)} for _ in range(5000)])
    done = subprocess.run([PROGRAM, "check", "--dbpath", str(copy)], capture_output=True, text=True)
    assert done.returncode == 0 and " 0 faults" in done.stdout, done.stdout + done.stderr
    with server.Server(dbpath=str(copy)) as other:
        assert state(other.uri) == expected


def test_mistakes_are_told_in_a_line(tmp_path):
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.mkdir()
    other.mkdir()
    (other / "notes.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    port = server.free_port()
    for args, words in [
        (["list", empty], "there are no backups"), (["list", tmp_path / "nowhere"], "there are no backups"),
        (["list", tmp_path / "file"], "could not read"), (["list", ""], "a target is"), (["list", "nope://x"], "not a target"),
        (["list", "s3://"], "names no bucket"), (["verify", empty], "there are no backups"),
        (["restore", empty, "--to", tmp_path / "x"], "there are no backups"), (["restore", empty], "--to"),
        (["prune", empty], "--keep"), (["prune", empty, "--keep", "soon"], "is not a time"),
        (["create", other, "--dbpath", empty], "not a data folder"),
        (["create", empty, "--dbpath", tmp_path / "nowhere"], "not a data folder"),
        (["create", empty, "--host", "127.0.0.1:%d" % port], "cannot connect"),
        (["create", empty, "--uri", "http://x"], "connection string"),
        (["create", empty, "--dbpath", empty, "--host", "x"], "cannot be used with"), (["nonsense"], "nonsense"),
    ]:
        said = backup(*args, fails=True)
        assert words in said, (args, said)
        assert len(said.strip().splitlines()) == 1, said
    assert not (tmp_path / "x").exists() and os.listdir(empty) == []
    with server.Server() as own:
        host = ["--host", "127.0.0.1:%d" % own.port]
        assert "holds other things" in backup("create", other, *host, fails=True)
        assert "could not" in backup("create", "/proc/nowhere", *host, fails=True)
        backup("create", empty, *host)
    for when in ("sometime", "2026-13-01", "25:00", ""):
        assert "is not a time" in backup("restore", empty, "--to", tmp_path / "x", "--at", when, fails=True)
    for options, words in [
        (["--backup-every", "1h"], "need a target"), (["--backup-to", str(other)], "holds other things"),
        (["--backup-to", str(empty), "--backup-every", "soon"], "is not a time"),
        (["--backup-to", str(empty), "--backup-keep", "0s"], "less than a second"),
        (["--backup-to", str(empty), "--backup-key-file", str(tmp_path / "file")], "holds no key"),
        (["--backup-to", str(empty), "--storage-engine", "memory"], "data in a folder"),
    ]:
        assert words in refusal(tmp_path / "data", *options), options


def test_the_schedule_can_be_said_in_a_file(tmp_path):
    config = tmp_path / "mongod.conf"
    config.write_text("backup:\n  to: %s\n  every: 1h\n  keep: 2d\n  logEvery: 1s\n" % (tmp_path / "backups"))
    with server.Server("--config", str(config)) as own, pymongo.MongoClient(own.uri) as client:
        wait_for(lambda: "lastBackup" in client.admin.command("backupStatus")["schedule"])
        shown = client.admin.command("backupStatus")["schedule"]
        assert (shown["everySecs"], shown["keepSecs"], shown["logEverySecs"]) == (3600, 172_800, 1)
        assert client.admin.command("getCmdLineOpts")["parsed"]["backup"]["every"] == "1h"
        assert client.admin.command("backup")["to"] == str(tmp_path / "backups")
