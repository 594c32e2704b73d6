"""Shared by the tests of backups: the program, a clock, and the data of a server."""
import os
import subprocess
import time

import pymongo
import server

PROGRAM = server.serve_command()[0]


def backup(*args, fails=False, env=None, timeout=300):
    """Runs `marula backup` and returns what it prints; a failure is one line, never a panic."""
    done = subprocess.run([PROGRAM, "backup", *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})
    assert "panicked" not in done.stderr and done.returncode in (0, 1, 2), done.stderr
    assert (done.returncode != 0) == fails, "%s\n%s%s" % (args, done.stdout, done.stderr)
    if fails:
        assert len((done.stderr or done.stdout).strip().splitlines()) >= 1
        return done.stdout + done.stderr
    return done.stdout


def killed(rng, *args):
    """Runs a program and kills it at some time, if it is not through by then."""
    process = subprocess.Popen([PROGRAM, "backup", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(rng.uniform(0, 0.6))
    except subprocess.TimeoutExpired:
        pass
    process.kill()
    process.wait()


def ids(target, *args, **kwargs):
    """The names of the backups, oldest first."""
    import json
    return [json.loads(line)["id"] for line in backup("list", target, "--json", *args, **kwargs).splitlines()]


def now_us():
    return time.time_ns() // 1000


def at(us):
    """A time as --at takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(us // 1_000_000)) + ".%06dZ" % (us % 1_000_000)


def validated(client):
    """Checks every collection with its indexes."""
    for name in client.list_database_names():
        for info in client[name].list_collections(filter={"type": "collection"}):
            report = client[name].command("validate", info["name"], full=True)
            # Documents may be older than the validator.
            warnings = [warning for warning in report["warnings"] if "not compliant" not in warning]
            assert report["valid"] and not report["errors"] and not warnings, (name, info["name"], report)
            if info["name"] == "system.views":
                continue
            count = client[name][info["name"]].estimated_document_count()
            assert count == report["nrecords"], (name, info["name"], count, report["nrecords"])


def state(uri):
    """The hash of every database but those of the server, all of which are checked."""
    with pymongo.MongoClient(uri) as client:
        validated(client)
        return {name: client[name].command("dbHash")["collections"]
                for name in client.list_database_names() if name not in ("local", "config")}


def restored(target, to, *args, **kwargs):
    """Restores and serves the folder."""
    backup("restore", target, "--to", to, *args, **kwargs)
    return server.Server(dbpath=str(to))


def refusal(dbpath, *options):
    """Returns the output of a server that does not start."""
    command = [*server.serve_command(), "--dbpath", str(dbpath), "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode not in (0, -6, 101) and "panicked" not in done.stderr, done.stderr
    return done.stderr


def wait_for(what, wait=60):
    """Waits until `what` returns something, and returns it."""
    until = time.monotonic() + wait
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < until, "it did not come within %d s" % wait
        time.sleep(0.05)


def log_until_us(schedule):
    """The time up to which the log is sent, by `backupStatus`; 0 if it is not."""
    until = schedule.get("logUntil")
    return int(until.timestamp() * 1000) * 1000 if until else 0


def wait_for_log(uri, us, wait=60):
    """Waits until the log is sent up to a time."""
    with pymongo.MongoClient(uri) as client:
        def sent():
            schedule = client.admin.command("backupStatus")["schedule"]
            assert "lastError" not in schedule, schedule
            return "lastBackup" in schedule and log_until_us(schedule) > us
        wait_for(sent, wait)
