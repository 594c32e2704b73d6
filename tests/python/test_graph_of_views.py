"""The graph that the views of a database form is checked in a time that does not depend on the
number of paths through it, and has no cycle at any time."""

import threading

import pymongo
import pytest
from pymongo.errors import OperationFailure

LAYERS = 18
WIDTH = 5
TIME_MS = 20_000


def create_layer(db, layer):
    """Creates views that each read all views of the layer below."""
    below = [f"v{layer - 1}_{at}" for at in range(WIDTH)] if layer else ["base"]
    on, *joined = below
    pipeline = [{"$lookup": {"from": name, "pipeline": [], "as": "x"}} for name in joined]
    for at in range(WIDTH):
        db.command("create", f"v{layer}_{at}", viewOn=on, pipeline=pipeline, maxTimeMS=TIME_MS)


def test_views_on_many_paths_are_created(db):
    # The last layer reaches the collection by five to the power of 18 paths.
    for layer in range(LAYERS):
        create_layer(db, layer)
    top = f"v{LAYERS - 1}_{WIDTH - 1}"
    assert list(db[top].find()) == []


def test_a_cycle_is_found_among_many_paths(db):
    for layer in range(LAYERS):
        create_layer(db, layer)
    top = f"v{LAYERS - 1}_{WIDTH - 1}"
    with pytest.raises(OperationFailure) as refused:
        db.command("collMod", "v0_1", viewOn=top, pipeline=[], maxTimeMS=TIME_MS)
    assert refused.value.code == 5
    assert refused.value.details["codeName"] == "GraphContainsCycle"
    db.command("collMod", "v0_1", viewOn="other", pipeline=[], maxTimeMS=TIME_MS)


@pytest.mark.parametrize("how", ["create", "collMod"])
def test_views_that_are_changed_at_the_same_time_are_no_cycle(uri, db, how):
    """Each definition is right next to the one that the other view had before."""
    wanted, rounds = {"a": "b", "b": "a"}, 100
    barrier, refusals = threading.Barrier(len(wanted) + 1, timeout=30), []

    def changing(name):
        with pymongo.MongoClient(uri) as client:
            for _ in range(rounds):
                barrier.wait()
                try:
                    client[db.name].command(how, name, viewOn=wanted[name], pipeline=[])
                except OperationFailure as error:
                    refusals.append(error.code)
                barrier.wait()

    threads = [threading.Thread(target=changing, args=(name,)) for name in wanted]
    for thread in threads:
        thread.start()
    cycles = 0
    for _ in range(rounds):
        for name in wanted:
            db[name].drop()
            if how == "collMod":
                db.command("create", name, viewOn="base", pipeline=[])
        barrier.wait()
        barrier.wait()
        views = db.list_collections(filter={"type": "view"})
        cycles += {view["name"]: view["options"]["viewOn"] for view in views} == wanted
    for thread in threads:
        thread.join()
    assert (cycles, refusals) == (0, [5] * rounds)
