"""applyOps: entries of an oplog, applied twice, rejected, and applied during reads."""
import threading
import uuid

import pytest
from bson import Binary
from pymongo.errors import OperationFailure


def apply(db, *entries, **options):
    """The reply, also of a command that failed."""
    try:
        return db.client.admin.command("applyOps", list(entries), **options)
    except OperationFailure as error:
        return error.details


def insert(c, document):
    return {"op": "i", "ns": c.full_name, "o": document}


def update(c, target, change, **more):
    return {"op": "u", "ns": c.full_name, "o2": target, "o": change, **more}


def test_an_insert_that_a_unique_index_refuses_leaves_the_document(db, c):
    c.create_index("k", unique=True)
    c.insert_many([{"_id": 0, "k": 0}, {"_id": 1, "k": 1}])
    reply = apply(db, insert(c, {"_id": 1, "k": 0}))
    assert (reply["ok"], reply["code"], reply["applied"], reply["results"]) == (0, 11000, 1, [False])
    assert list(c.find()) == [{"_id": 0, "k": 0}, {"_id": 1, "k": 1}]


def test_an_insert_is_applied_twice_and_no_reader_misses_it(db, c):
    c.insert_one({"_id": 1, "n": -1})
    missed, done = [], threading.Event()

    def read():
        while not done.is_set():
            if c.find_one({"_id": 1}) is None:
                missed.append(1)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(300):
        assert apply(db, insert(c, {"_id": 1, "n": n}))["results"] == [True]
    done.set()
    for reader in readers:
        reader.join()
    assert not missed
    assert list(c.find()) == [{"_id": 1, "n": 299}]


# The result of mongod 6.0 for { _id: 1, a: 1, s: { x: 1, y: 2 }, l: [1, 2, 3] }.
UPDATES = [
    ({"$set": {"a": 2}}, {"_id": 1, "a": 2, "s": {"x": 1, "y": 2}, "l": [1, 2, 3]}),
    ({"$v": 1, "$set": {"a": 2}}, {"_id": 1, "a": 2, "s": {"x": 1, "y": 2}, "l": [1, 2, 3]}),
    ({"_id": 1, "r": 1}, {"_id": 1, "r": 1}),
    ({"$v": 2, "diff": {"d": {"a": False}, "u": {"s": 5}, "i": {"n": 1}}}, {"_id": 1, "s": 5, "l": [1, 2, 3], "n": 1}),
    ({"$v": 2, "diff": {"i": {"a": 9}}}, {"_id": 1, "s": {"x": 1, "y": 2}, "l": [1, 2, 3], "a": 9}),
    ({"$v": 2, "diff": {"u": {"q": 9}}}, {"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1, 2, 3], "q": 9}),
    ({"$v": 2, "diff": {"ss": {"d": {"x": False}, "u": {"y": 3}}}}, {"_id": 1, "a": 1, "s": {"y": 3}, "l": [1, 2, 3]}),
    ({"$v": 2, "diff": {"sl": {"a": True, "l": 1}}}, {"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1]}),
    ({"$v": 2, "diff": {"sl": {"a": True, "u1": 7, "u4": 9}}},
     {"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1, 7, 3, None, 9]}),
    ({"$v": 2, "diff": {"sa": {"u": {"x": 1}}}}, {"_id": 1, "a": None, "s": {"x": 1, "y": 2}, "l": [1, 2, 3]}),
    ({"$v": 2, "diff": {"ss": {"a": True, "l": 0}}}, {"_id": 1, "a": 1, "s": None, "l": [1, 2, 3]}),
    ({"$v": 2, "diff": {"sl": {"a": True, "s1": {"u": {"x": 1}}, "s4": {"a": True, "l": 1}}}},
     {"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1, None, 3, None, None]}),
    ({"$v": 2, "diff": {"sz": {"u": {"x": 1}}}}, {"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1, 2, 3]}),
]


@pytest.mark.parametrize("change,expected", UPDATES, ids=lambda value: "")
def test_updates_have_the_forms_of_an_oplog(db, c, change, expected):
    c.insert_one({"_id": 1, "a": 1, "s": {"x": 1, "y": 2}, "l": [1, 2, 3]})
    assert apply(db, update(c, {"_id": 1}, change))["results"] == [True]
    assert [list(d.items()) for d in c.find()] == [list(expected.items())]


def test_updates_insert_unless_told_not_to(db, c):
    c.insert_one({"_id": 0})
    apply(db, update(c, {"_id": 1}, {"$set": {"a": 1}}), update(c, {"_id": 2}, {"$v": 2, "diff": {"i": {"a": 2}}}))
    reply = apply(db, update(c, {"_id": 3}, {"$set": {"a": 3}}), alwaysUpsert=False)
    assert (reply["code"], reply["codeName"]) == (218, "UpdateOperationFailed")
    apply(db, update(c, {"_id": 4}, {"$set": {"a": 4}}, b=True), alwaysUpsert=False)
    assert list(c.find()) == [{"_id": 0}, {"_id": 1, "a": 1}, {"_id": 2, "a": 2}, {"_id": 4, "a": 4}]


def test_commands_are_run_and_what_is_so_already_stays(db, c):
    def command(**body):
        return {"op": "c", "ns": db.name + ".$cmd", "o": body}

    for entry in (command(create="x"), command(create="x"), command(renameCollection=db.name + ".x", to=db.name + ".y"),
                  command(collMod="y", validationLevel="strict"), command(drop="z")):
        assert apply(db, entry)["results"] == [True], entry
    assert "y" in db.list_collection_names()
    db.y.create_index("a")
    assert apply(db, command(dropIndexes="y", index="a_1"), command(drop="y"))["results"] == [True, True]
    assert "y" not in db.list_collection_names()
    db.create_collection("c")
    nested = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [insert(c, {"_id": 5})]}}
    assert apply(db, nested)["results"] == [True]
    assert c.find_one({"_id": 5}) == {"_id": 5}
    assert apply(db, command(createIndexes="c", key={"a": 1}, name="a_1"))["code"] == 115
    assert apply(db, command(ping=1))["code"] == 2


def test_a_collection_may_keep_its_uuid(db):
    meant = Binary(uuid.uuid4().bytes, 4)
    entry = {"op": "c", "ns": db.name + ".$cmd", "o": {"create": "x"}, "ui": meant}
    assert apply(db, entry)["results"] == [True]
    assert [info["info"]["uuid"] for info in db.list_collections()] == [meant]


def test_conditions_come_first(db, c):
    c.insert_one({"_id": 0, "k": 0})
    condition = {"ns": c.full_name, "q": {"_id": 0}, "res": {"k": 0}}
    assert apply(db, insert(c, {"_id": 1}), preCondition=[condition])["results"] == [True]
    reply = apply(db, insert(c, {"_id": 2}), preCondition=[{**condition, "res": {"k": 1}}])
    assert (reply["code"], reply["got"], reply["whatFailed"]["res"]) == (2, {"_id": 0, "k": 0}, {"k": 1})
    assert c.count_documents({}) == 1 + 1


@pytest.mark.parametrize("condition, code", [
    ({}, 73), ({"ns": 5, "q": {}, "res": {}}, 73), ({"ns": "x", "q": {}, "res": {}}, 73),
    ({"res": {}}, 10065), ({"q": {}}, 10065), ({"q": 5, "res": {}}, 10065), ({"q": {}, "res": "x"}, 10065),
    ({"ns": "no_such.c", "q": {}, "res": {}}, 26),
    # The parts of `res` are evaluated in their order, whether or not `q` finds a document.
    ({"q": {}, "res": {"$expr": {"$in": [1, "$_id"]}, "b": 1}}, 40081), ({"q": {}, "res": {"b": 1, "$expr": {"$in": [1, "$_id"]}}}, 2),
    ({"q": {"_id": 9}, "res": {"$or": [{"$expr": {"$in": [1, "$_id"]}}, {"b": None}]}}, 40081),
    ({"q": {}, "res": {"b": 1, "$expr": {"$in": [1, {"$literal": 2}]}}}, 2),
])
def test_conditions_that_are_none(db, c, condition, code):
    c.insert_one({"_id": 0})
    condition = {"ns": c.full_name, **condition} if condition else condition
    for entries in ([insert(c, {"_id": 1})], [{"op": "n", "ns": "", "o": {}}]):
        assert apply(db, *entries, preCondition=[condition])["code"] == code
    command = {"op": "c", "ns": db.name + ".$cmd", "o": {"create": "x"}}
    assert apply(db, command, preCondition=[condition])["code"] == 72
    assert c.count_documents({}) == 1


def test_of_a_condition_the_query_comes_first_and_then_the_collection(db, c):
    c.insert_one({"_id": 0})
    db.create_collection("seen", viewOn=c.name, pipeline=[])
    condition = {"ns": c.full_name, "q": {}, "res": {"$and": 5}}
    negative, other = {"a": {"$bitsAnySet": -2.0}}, f"{c.full_name}_other"
    for changed, code in [({"q": negative}, 9), ({"q": 5, "res": 5}, 10065), ({}, 2), ({"q": negative, "ns": other}, 9),
                          ({"ns": other, "res": 5}, 26), ({"ns": other, "q": 5}, 10065), ({"ns": f"{db.name}.seen"}, 26),
                          ({"ns": "none.c"}, 26)]:
        assert apply(db, insert(c, {"_id": 9}), preCondition=[{**condition, **changed}])["code"] == code


def test_a_condition_has_the_collation_of_its_collection(db):
    db.create_collection("french", collation={"locale": "fr", "strength": 1})
    db.french.insert_one({"_id": 0, "a": "é"})
    condition = {"ns": f"{db.name}.french", "q": {"a": "E"}, "res": {"_id": 0}}
    assert apply(db, insert(db.french, {"_id": 1}), preCondition=[condition])["results"] == [True]
    by_text = {**condition, "res": {"a": "e"}}
    assert apply(db, insert(db.french, {"_id": 2}), preCondition=[by_text])["results"] == [True]
    reply = apply(db, insert(db.french, {"_id": 3}), preCondition=[{**condition, "res": {"a": "f"}}])
    assert (reply["code"], reply["got"]) == (2, {"_id": 0, "a": "é"})


def test_an_entry_with_a_uuid_changes_the_collection_that_has_it(db, c):
    c.insert_one({"_id": 0})
    db.other.insert_one({"_id": 0})
    [info] = db.list_collections(filter={"name": "other"})
    own = info["info"]["uuid"]
    own = own if isinstance(own, Binary) else Binary.from_uuid(own)
    assert apply(db, {**insert(c, {"_id": 1}), "ui": own})["results"] == [True]
    assert apply(db, {**update(c, {"_id": 0}, {"$set": {"a": 1}}), "ui": own})["results"] == [True]
    assert list(c.find()) == [{"_id": 0}] and list(db.other.find()) == [{"_id": 0, "a": 1}, {"_id": 1}]
    reply = apply(db, {**insert(c, {"_id": 2}), "ui": Binary(bytes(16), 4)})
    assert (reply["code"], reply["results"]) == (26, [False])
    reply = apply(db, insert(c, {"_id": 1}), {**insert(c, {"_id": 2}), "ui": Binary(bytes(16), 4)})
    assert (reply["code"], reply["results"]) == (26, [False, False]) and c.count_documents({}) == 1
    for bad, code in ((Binary(b"abc", 4), 207), (Binary(bytes(16), 0), 14)):
        assert apply(db, {**insert(c, {"_id": 2}), "ui": bad})["code"] == code


REFUSED = [
    ({"op": "i", "o": {"k": 77}}, 4),
    ({"op": "i"}, 40414),
    ({"op": "i", "o": "x"}, 14),
    ({"op": "i", "ns": "no_such.c", "o": {"_id": 1}}, 26),
    ({"op": "u", "o": {"$set": {"a": 1}}}, 4),
    ({"op": "u", "o2": {"_id": 1}, "o": {"$v": 3, "diff": {}}}, 4772600),
    *(({"op": "u", "o2": {"_id": 0}, "o": {"$v": 2, "diff": diff}}, code) for diff, code in [
        ({}, 4770500), ({"x": {}}, 4770503), ({"d": 1}, 4770507), ({"sa": 1}, 4770507), ({"sl": {"a": False}}, 4770520),
        ({"sl": {"a": True, "l": "x"}}, 4770507), ({"sl": {"a": True, "ux": 1}}, 4770512),
        ({"sl": {"a": True, "x": 1}}, 4770521), ({"sl": {"a": True, "l": -1}}, 13548), ({"": 1}, 4770505),
        ({"a": True}, 4770503), ({"i": {"a": 1}, "u": {"b": 1}}, 4770503), ({"sl": {"a": 1}}, 4770519),
        ({"sl": {"a": True, "u0": 1, "l": 1}}, 4770521), ({"sl": {"a": True, "s0": 5}}, 4770501),
        ({"sl": {"a": True, "x0": 1}}, 4770502), ({"sx": {"u": {}}, "u": {}}, 4770514), ({"sx": {"u": {}}, "sy": 1}, 470510),
        ({"u": {"a": 1}, "sa": {"u": {"x": 1}}}, 4728000), ({"d": {"a": False}, "i": {"a": 1}}, 4728000)]),
    ({"op": "d", "o": {"k": 1}}, 4),
    ({"op": "x", "o": {}}, 2),
    ({"op": "i", "o": {"_id": 1}, "other": 1}, 40415),
    ({"op": "i", "o": {"_id": 1}, "ts": None}, 40414),
    ({"op": "i", "ns": "x", "o": {"_id": 1}}, 73),
    ({"op": "c", "ns": "x", "o": {"drop": "c"}}, 73),
    ({"op": "d", "ns": "x.system.y", "o": {"_id": 1}}, 12050),
]
# A list with one of these is rejected before any entry is applied.
NO_ENTRIES = [
    ({"op": "", "o": {}}, 20), ({"op": "i", "ns": 5, "o": {}}, 20), ({"op": "n", "ns": "a.b\0", "o": {}}, 20),
    ({"op": "d", "ns": "", "o": {}}, 20), ({"op": "x", "ns": "x", "o": {}}, 73), ({"op": "c"}, 4), ({"op": "c", "o": 5}, 14),
    ({"op": "c", "o": {}}, 2), ({"op": "c", "o": {"ping": 1}}, 2), ({"op": "c", "o": {"applyOps": 5}}, 14),
    ({"op": "c", "o": {"applyOps": [{"op": 5}]}}, 14),
]


@pytest.mark.parametrize("entry,code", NO_ENTRIES, ids=str)
def test_a_list_with_no_entry_in_it_is_not_begun(db, c, entry, code):
    c.insert_one({"_id": 0})
    reply = apply(db, insert(c, {"_id": 1}), {"ns": c.full_name, **entry})
    assert (reply["ok"], reply["code"], "results" in reply) == (0, code, False)
    assert c.count_documents({}) == 1


def test_after_the_creation_of_a_collection_entries_are_checked_in_other_words(db, c):
    create = {"op": "c", "ns": db.name + ".$cmd", "o": {"create": "x"}}
    drop = {"op": "c", "ns": db.name + ".$cmd", "o": {"drop": "x"}}
    for entry, after_create, after_drop in (({"ns": "a.b"}, 20, 4), ({"op": 5}, 20, 14), (5, 9, 14)):
        assert apply(db, create, entry)["code"] == after_create
        assert apply(db, drop, entry)["code"] == after_drop


def test_a_difference_is_read_as_far_as_it_is_applied(db, c):
    c.insert_one({"_id": 0, "a": 1, "l": [{"x": 1}]})
    for diff in ({"sa": {"sq": {"zz": 1}}}, {"sq": {"u": {"x": 1}, "i": {"x": 1}}},
                 {"sl": {"a": True, "s0": {"a": True, "zz": 1}}}, {"ux": {"n": 5}}):
        assert apply(db, update(c, {"_id": 0}, {"$v": 2, "diff": diff}))["results"] == [True]
    assert c.find_one() == {"_id": 0, "a": None, "l": [None], "n": 5}
    reply = apply(db, update(c, {"_id": 9}, {"$v": 2, "diff": {}}), alwaysUpsert=False)
    assert reply["code"] == 218


@pytest.mark.parametrize("entry,code", REFUSED, ids=str)
def test_what_is_no_entry_is_refused(db, c, entry, code):
    c.insert_one({"_id": 0, "l": [1]})
    reply = apply(db, {"ns": c.full_name, **entry})
    assert (reply["ok"], reply["code"], reply["results"]) == (0, code, [False])
    assert c.count_documents({}) == 1


def test_a_list_that_changes_documents_is_applied_whole_or_not_at_all(db, c):
    def outcome(*entries, **options):
        c.drop()
        c.insert_many([{"_id": n, "u": n} for n in range(3)])
        c.create_index("u", unique=True)
        reply = apply(db, *entries, **options)
        return reply["ok"], reply.get("code"), reply["applied"], reply["results"], [doc["_id"] for doc in c.find().sort("_id", 1)]

    remove = {"op": "d", "ns": c.full_name, "o": {"_id": 2}}
    new, taken = insert(c, {"_id": 10, "u": 10}), insert(c, {"_id": 11, "u": 1})
    absent = update(c, {"_id": 99}, {"$v": 2, "diff": {"u": {"a": 1}}})
    assert outcome(new, update(c, {"_id": 1}, {"$v": 2, "diff": {"u": {"a": 1}}}), remove) == (1, None, 3, [True] * 3, [0, 1, 10])
    assert outcome(new, taken, remove) == (0, 11000, 2, [False, False], [0, 1, 2])
    assert outcome(new, taken, remove, allowAtomic=False) == (0, 11000, 2, [True, False], [0, 1, 2, 10])
    # The removal of a key comes before its insertion.
    assert outcome(remove, insert(c, {"_id": 12, "u": 2})) == (1, None, 2, [True, True], [0, 1, 12])
    assert outcome(new, absent, remove, alwaysUpsert=False) == (0, 218, 2, [False, False], [0, 1, 2])
    assert outcome(new, absent, remove, alwaysUpsert=False, allowAtomic=False) == (0, 8, 3, [True, False, True], [0, 1, 10])
    # A list that does anything else, or has nowhere to go, is applied one by one.
    assert outcome(new, {"op": "i", "ns": "no_such.c", "o": {"_id": 1}}, remove) == (0, 26, 2, [True, False], [0, 1, 2, 10])
    made = {"op": "c", "ns": db.name + ".$cmd", "o": {"create": "made_by_entry"}}
    assert outcome(new, made, taken) == (0, 11000, 3, [True, True, False], [0, 1, 2, 10])
    refused = apply(db, new, preCondition=[{"ns": c.full_name, "q": {}, "res": {}}], allowAtomic=False)
    assert refused["code"] == 72 and "Cannot use preCondition with {allowAtomic: false}" in refused["errmsg"]


def test_an_entry_is_shown_as_it_was_applied(db, c):
    """With a hash where each entry is applied by itself; and a difference that finds nothing has words of its own."""
    c.insert_one({"_id": 0})
    absent = update(c, {"_id": 99}, {"$v": 2, "diff": {"u": {"a": 1}}})
    operators = update(c, {"_id": 99}, {"$v": 1, "$set": {"a": 1}})
    no_id = {"op": "d", "ns": c.full_name, "o": {"a": 1}}
    nowhere = {"op": "d", "ns": c.full_name + "_none", "o": {"a": 1}}

    def told(*entries, **options):
        reply = apply(db, *entries, **options)
        return reply.get("code"), reply.get("errmsg", "").partition(":")[0], "h: 0" in reply.get("errmsg", "")

    assert told(no_id) == (4, "Failed to apply delete due to missing _id", False)
    assert told(no_id, allowAtomic=False) == (4, "Failed to apply delete due to missing _id", True)
    assert told(nowhere) == (4, "Failed to apply delete due to missing _id", False)
    assert told(nowhere, allowAtomic=False) == (None, "", False)
    assert told(absent, alwaysUpsert=False) == (218, "Update of non-mod failed", False)
    assert told(operators, alwaysUpsert=False) == (218, "Failed to apply update", False)
    # A list that is applied one by one continues after an error, and has one result.
    assert told(absent, alwaysUpsert=False, allowAtomic=False)[0] == 8
    assert told(operators, alwaysUpsert=False, allowAtomic=False)[0] == 8


@pytest.mark.parametrize("body, code, left", [
    # A difference leaves a document its `_id`.
    ({"$v": 2, "diff": {"d": {"_id": False}, "u": {"b": 1}}}, None, {"_id": 0, "a": 1, "b": 1}),
    ({"$v": 2, "diff": {"u": {"_id": 5}}}, 13596, None), ({"$v": 2, "diff": {"i": {"_id": 5}}}, 13596, None),
    ({"$v": 2}, 4772601, None), ({"$v": 2, "diff": []}, 4772601, None), ({"$v": 2, "diff": {"xy": 1}}, 4770503, None),
    # An object with an `_id` is a whole document, whatever its other fields are called.
    ({"_id": 0, "$v": 2}, None, {"_id": 0, "$v": 2}), ({"_id": 0, "$x": 1}, None, {"_id": 0, "$x": 1}),
    ({"$set": {"a": 1}, "_id": 5}, 13596, None), ({"a": 1, "_id": 5}, 13596, None), ({"_id": [1]}, 13596, None),
    # And what has none is made of operators.
    ({"a": 5}, 9, None), ({}, None, {"_id": 0, "a": 1}),
])
def test_what_an_update_entry_makes_of_a_document(db, c, body, code, left):
    c.insert_one({"_id": 0, "a": 1})
    reply = apply(db, update(c, {"_id": 0}, body))
    assert reply.get("code") == code, reply
    assert list(c.find()) == [left or {"_id": 0, "a": 1}]
    assert db.command("validate", c.name)["valid"]


@pytest.mark.parametrize("body, made", [
    ({"$v": 2, "diff": {"d": {"_id": False}}}, {"_id": 9}), ({"$v": 2, "diff": {"u": {"_id": 5}}}, {"_id": 5}),
    ({"a": 1, "_id": 5}, {"_id": 5, "a": 1}), ({"_id": 9, "$x": 1}, {"_id": 9, "$x": 1}),
])
def test_what_an_update_entry_inserts(db, c, body, made):
    c.insert_one({"_id": 0})
    assert apply(db, update(c, {"_id": 9}, body))["ok"] == 1
    assert list(c.find({"_id": {"$ne": 0}})) == [made]
    assert list(c.find({"_id": made["_id"]})) == [made]
    assert db.command("validate", c.name)["valid"]


@pytest.mark.parametrize("document, left", [
    # The document is what the oplog's server has stored: names of fields are not checked.
    ({"_id": 5, "$x": 1}, [{"_id": 5, "$x": 1}]), ({"_id": 5, "$set": {"a": 1}}, [{"_id": 5, "$set": {"a": 1}}]),
    ({"_id": {"a": 1, "$x": 1}}, [{"_id": 5, "a": 1}, {"_id": {"a": 1, "$x": 1}}]),
    # An `_id` of operators is evaluated as a condition.
    ({"_id": {"$gt": 1}}, 13596), ({"_id": {"$gt": 9}}, [{"_id": 5, "a": 1}, {"_id": {"$gt": 9}}]), ({"_id": {"$x": 1}}, 2),
])
def test_an_insert_entry_with_names_of_operators(db, c, document, left):
    c.insert_one({"_id": 5, "a": 1})
    reply = apply(db, insert(c, document))
    assert reply.get("code") == (left if isinstance(left, int) else None), reply
    assert list(c.find()) == ([{"_id": 5, "a": 1}] if isinstance(left, int) else left)
    assert db.command("validate", c.name)["valid"]


@pytest.mark.parametrize("condition, code, left", [
    ({"$gt": 1}, None, 0), ({"$in": [5]}, None, 0), ({"$gt": 9}, None, 1), ({"$x": 1}, 2, 1), (5, None, 0),
])
def test_a_delete_entry_evaluates_operators(db, c, condition, code, left):
    c.insert_one({"_id": 5, "a": 1})
    assert apply(db, {"op": "d", "ns": c.full_name, "o": {"_id": condition}}).get("code") == code
    assert c.count_documents({}) == left


def test_nobody_sees_half_of_a_list(db, c):
    c.insert_many([{"_id": 0, "n": 0}, {"_id": 1, "n": 0}])
    done, torn = threading.Event(), []

    def read():
        while not done.is_set():
            found = next(c.aggregate([{"$group": {"_id": None, "values": {"$addToSet": "$n"}}}]))["values"]
            if len(found) != 1:
                torn.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(1, 200):
        changes = [update(c, {"_id": position}, {"$v": 2, "diff": {"u": {"n": n}}}) for position in (0, 1)]
        assert apply(db, *changes)["ok"] == 1
    done.set()
    reader.join()
    assert torn == []
    assert db.command("validate", c.name)["valid"]


def test_a_list_with_a_command_goes_on_after_an_insert_that_is_not_valid(db):
    db.create_collection("c", validator={"a": {"$exists": True}})
    insert = [{"op": "i", "ns": db.name + ".c", "o": doc} for doc in ({"_id": 1}, {"_id": 2, "a": 1})]
    command = {"op": "c", "ns": db.name + ".$cmd", "o": {"create": "other"}}
    with pytest.raises(OperationFailure) as failure:
        db.client.admin.command("applyOps", [command, *insert])
    assert failure.value.code == 8 and failure.value.details["results"] == [True, False, True]
    assert [doc["_id"] for doc in db.c.find()] == [2]
    # A list of changes is atomic, and tells its error.
    with pytest.raises(OperationFailure) as failure:
        db.client.admin.command("applyOps", [{"op": "i", "ns": db.name + ".c", "o": doc} for doc in ({"_id": 3}, {"_id": 4, "a": 1})])
    assert failure.value.code == 121 and failure.value.details["results"] == [False]
    assert [doc["_id"] for doc in db.c.find()] == [2]


def test_entries_that_change_nothing_keep_a_list_atomic(db, c):
    c.insert_one({"_id": 3})
    changes = [{"op": "i", "ns": c.full_name, "o": {"_id": 5}}, update(c, {"b": 1}, {"$v": 2, "diff": {"u": {"c": 1}}})]
    nothing = {"op": "n", "ns": c.full_name, "o": {}}
    for entries in ([*changes, nothing], [changes[0], nothing, changes[1]], [nothing, *changes]):
        reply = apply(db, *entries)
        assert reply["code"] == 4 and reply["results"] == [False, False]
        assert [doc["_id"] for doc in c.find()] == [3]
    assert apply(db, nothing, changes[0])["results"] == [True]
