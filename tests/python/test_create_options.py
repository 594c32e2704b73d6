"""`create`: combinations of options."""
import pytest
from bson import Decimal128, Int64
from pymongo.errors import OperationFailure

SERIES = {"timeseries": {"timeField": "t"}}


@pytest.mark.parametrize(
    "options, code",
    [
        ({**SERIES, "capped": False}, None),
        ({**SERIES, "capped": None}, None),
        ({**SERIES, "size": None, "max": None}, None),
        ({**SERIES, "size": 4096}, 72),
        ({**SERIES, "max": 5}, 72),
        ({**SERIES, "capped": True, "size": 4096}, 72),
        ({"clusteredIndex": {"key": {"_id": 1}, "unique": True}, "size": 4096}, 6049200),
        ({"clusteredIndex": {"key": {"_id": 1}, "unique": True}, "max": 5}, 6049204),
        ({"clusteredIndex": True, "capped": True}, 6127800),
        ({"collation": {"locale": "en"}, "idIndex": {"key": {"_id": 1}, "name": "_id_"}}, None),
        ({"collation": {"locale": "en"}, "idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 1}}, 2),
        ({"collation": {"locale": "en"}, "idIndex": {"key": {"_id": 1}, "name": "_id_",
                                                     "collation": {"locale": "fr"}}}, 2),
        ({**SERIES, "flags": 1}, 72),
        ({**SERIES, "storageEngine": {"x": {}}}, 72),
        ({**SERIES, "storageEngine": {"wiredTiger": {}}}, None),
        ({**SERIES, "indexOptionDefaults": {"a": 1}}, 40415),
        ({**SERIES, "indexOptionDefaults": {"storageEngine": {"x": {}}}}, 72),
        ({"timeseries": None}, None),
        ({"size": 4096, "timeseries": None}, 72),
        ({"clusteredIndex": None}, 14),
        ({"clusteredIndex": None, "capped": True}, 14),
        ({"clusteredIndex": "x"}, 14),
        ({"clusteredIndex": 5}, 5979703),
        ({"clusteredIndex": {}}, 40414),
        ({"autoIndexId": True, "idIndex": {"key": {"_id": 1}, "name": "_id_"}}, 72),
        ({"autoIndexId": False, "idIndex": {"key": {"a": 1}, "name": "a"}}, 72),
        ({"autoIndexId": None, "idIndex": {"key": {"_id": 1}, "name": "_id_"}}, None),
    ],
)
def test_options_of_create_go_together(db, options, code):
    if code is None:
        assert db.command("create", "n", **options)["ok"] == 1
        return
    with pytest.raises(OperationFailure) as failure:
        db.command("create", "n", **options)
    assert failure.value.code == code
    assert "n" not in db.list_collection_names()


def options_of(db, name):
    return db.command("listCollections", filter={"name": name})["cursor"]["firstBatch"][0]["options"]


def test_options_are_listed_in_mongods_order(db):
    db.command("create", "n", validator={"a": 1}, collation={"locale": "en"}, changeStreamPreAndPostImages={"enabled": True})
    assert list(options_of(db, "n")) == ["changeStreamPreAndPostImages", "validator", "collation"]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_images_are_listed_if_they_are_enabled(db, is_enabled):
    images = {"enabled": is_enabled}
    db.command("create", "c", changeStreamPreAndPostImages=images)
    [listed] = db.list_collections(filter={"name": "c"})
    assert listed["options"] == ({"changeStreamPreAndPostImages": images} if is_enabled else {})


def test_a_clustered_index_is_listed_with_the_collation(db):
    db.command("create", "n", clusteredIndex={"key": {"_id": 1}, "unique": True}, collation={"locale": "en"})
    [index] = db.n.list_indexes()
    assert list(index) == ["v", "key", "name", "unique", "collation", "clustered"]
    assert index["collation"]["locale"] == "en"


@pytest.mark.parametrize("given, code", [
    (2**31, 51024), (Int64(2**53 + 1), 51024), (Decimal128("9007199254740993"), 51024), (2.9, None), (Int64(-2**63), None),
    (Decimal128("1.5"), None),
])
def test_a_maximum_of_documents_is_read_exactly(db, given, code):
    db.command("create", "n", capped=True, size=4096)
    if code is None:
        db.command("collMod", "n", cappedMax=given)
        assert options_of(db, "n")["max"] == (2**31 - 1 if given == -2**63 else 2)
        return
    with pytest.raises(OperationFailure, match=str(given)) as failure:
        db.command("collMod", "n", cappedMax=given)
    assert failure.value.code == code


def test_a_change_of_options_keeps_the_order_of_the_list(db):
    db.command("create", "k", collation={"locale": "en"}, validationAction="warn")
    db.command("collMod", "k", validator={"a": 1})
    assert list(options_of(db, "k")) == ["validator", "validationLevel", "validationAction", "collation"]
    db.command("create", "d", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.command("collMod", "d", validationLevel="off")
    assert list(options_of(db, "d")) == ["validationLevel", "validationAction", "clusteredIndex"]


@pytest.mark.parametrize("options", [
    {"capped": True, "size": 5, "max": 7}, {"validator": {"a": 1}}, {"validationLevel": "strict", "validationAction": "warn"},
    {"storageEngine": {"wiredTiger": {}}}, {"autoIndexId": True},
], ids=lambda options: next(iter(options)))
def test_a_view_keeps_no_option_of_stored_documents(db, options):
    db.command("create", "v", viewOn="c", **options)
    assert options_of(db, "v") == {"viewOn": "c", "pipeline": []}


@pytest.mark.parametrize("strength, expected", [
    (1.9, 1), (Decimal128("1.5"), 2), (Decimal128("2.5"), 2), (Decimal128("0.6"), 1), (Decimal128("5.5"), None), (5.9, 5),
])
def test_a_decimal_strength_of_a_collation_is_rounded(db, strength, expected):
    create = {"create": "k", "collation": {"locale": "de", "strength": strength}}
    if expected is None:
        with pytest.raises(OperationFailure) as failure:
            db.command(create)
        assert failure.value.code == 51024
    else:
        db.command(create)
        assert db.k.options()["collation"]["strength"] == expected


# ---- views with names of the server's own collections

RESERVED = "Cannot create a view called 'system.views': this is a reserved system namespace"
OF_SYSTEM = "View name cannot start with 'system.', which is reserved for system namespaces"


def refused(db, command):
    with pytest.raises(OperationFailure) as failure:
        db.command(command)
    return failure.value.code, failure.value.details["errmsg"]


@pytest.mark.parametrize("name, expected", [
    ("system.views", RESERVED),
    ("system.js", OF_SYSTEM),
    ("system.profile", OF_SYSTEM),
    ("system.users", OF_SYSTEM),
    ("system.buckets.c", OF_SYSTEM),
])
def test_a_view_has_no_system_name(db, name, expected):
    # A view named system.views stood in the list of views that are dropped with it: the drop
    # waited for itself, and every later change of the catalogue for the drop.
    assert refused(db, {"create": name, "viewOn": "c"}) == (73, expected)
    # The name comes before the definition.
    assert refused(db, {"create": name, "viewOn": name, "pipeline": [{"$geoNear": {}}]}) == (73, expected)
    db.drop_collection("system.views")
    assert db.list_collection_names() == []


def test_measurements_have_no_system_name(db):
    series = {"timeseries": {"timeField": "t"}}
    assert refused(db, {"create": "system.views", **series}) == (
        51070, "Modifications to system.views must take an exclusive lock")
    code, text = refused(db, {"create": "system.js", **series})
    assert code == 73
    assert text == (
        "Failed to create view on %s.system.buckets.system.js for time-series collection %s.system.js with options "
        '{ viewOn: "system.buckets.system.js", pipeline: [ { $_internalUnpackBucket: { timeField: "t", '
        "bucketMaxSpanSeconds: 3600 } } ] } :: caused by :: %s" % (db.name, db.name, OF_SYSTEM))
    assert refused(db, {"create": "system.x", **series}) == (73, "Invalid system namespace: %s.system.x" % db.name)
    # No buckets are left.
    assert db.list_collection_names() == []


# ---- large numbers


def test_a_collection_of_more_than_a_petabyte_is_refused(db):
    db.c.insert_one({})
    expected = (2, "size cannot exceed 1 PB")
    assert refused(db, {"convertToCapped": "c", "size": Int64(2**50 + 1)}) == expected
    assert refused(db, {"cloneCollectionAsCapped": "c", "toCollection": "d", "size": Int64(2**50 + 1)}) == expected


@pytest.mark.parametrize("scale", [Int64(2**31), 1e10, 1e300, Decimal128("1E+10")])
def test_a_scale_is_at_most_the_largest_int(db, scale):
    assert db.command("collStats", "c", scale=scale)["scaleFactor"] == 2**31 - 1
    db.c.insert_one({})
    assert db.command("collStats", "c", scale=scale)["scaleFactor"] == 2**31 - 1
    [stats] = db.c.aggregate([{"$collStats": {"storageStats": {"scale": scale}}}])
    assert stats["storageStats"]["scaleFactor"] == 2**31 - 1


@pytest.mark.parametrize("existing, text", [
    ({}, "Collection {ns} already exists."),
    ({"viewOn": "d"}, "A view already exists. NS: {ns}"),
    (SERIES, "A timeseries collection already exists. NS: {ns}"),
])
@pytest.mark.parametrize("options", [
    {"validator": {"$a": 1}},
    {"collation": {"locale": "xx"}},
    {"clusteredIndex": True},
    {"clusteredIndex": {"key": {"a": 1}, "unique": True}},
    {"clusteredIndex": {"key": {"_id": 1}, "unique": True}, "expireAfterSeconds": -1},
    {"clusteredIndex": False, "expireAfterSeconds": 5},
    {"autoIndexId": False},
    {"storageEngine": {"x": {}}},
    {"indexOptionDefaults": {"storageEngine": {"x": {}}}},
])
def test_an_existing_collection_comes_before_mistakes_of_its_creation(db, existing, text, options):
    db.create_collection("there", **existing)
    with pytest.raises(OperationFailure) as refused:
        db.command("create", "there", **options)
    assert (refused.value.code, refused.value.details["errmsg"]) == (48, text.format(ns=db.there.full_name))


@pytest.mark.parametrize("options, code", [
    ({"viewOn": "d"}, None),
    ({"viewOn": "d", "expireAfterSeconds": 5}, None),
    ({"expireAfterSeconds": 5}, 72),
    ({"size": 4096}, 6049200),
    ({"max": 5}, 6049204),
    ({"capped": True, "size": 4096}, 6127800),
])
def test_a_clustered_index_of_false_counts_with_the_options_of_capped_collections_alone(db, options, code):
    if code is None:
        db.command("create", "flag", clusteredIndex=False, **options)
        return
    with pytest.raises(OperationFailure) as refused:
        db.command("create", "flag", clusteredIndex=False, **options)
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["system.js", "system.buckets.other", "system.views"])
def test_system_collections_are_not_created_in_a_transaction(db, name):
    with pytest.raises(OperationFailure) as refused:
        with db.client.start_session() as session, session.start_transaction():
            db.command("create", name, session=session)
    text = f"Cannot create system collection {db.name}.{name} within a transaction."
    assert (refused.value.code, refused.value.details["errmsg"]) == (263, text)


@pytest.mark.parametrize("name, target", [("system.js", "system.js"), ("series", "system.buckets.series")])
def test_system_collections_get_no_index_in_a_transaction(db, name, target):
    db.create_collection("series", **SERIES)
    with pytest.raises(OperationFailure) as refused:
        with db.client.start_session() as session, session.start_transaction():
            db.command("createIndexes", name, indexes=[{"key": {"a": 1}, "name": "a"}], session=session)
    text = f"Cannot write to system collection {db.name}.{target} within a transaction."
    assert (refused.value.code, refused.value.details["errmsg"]) == (263, text)


@pytest.mark.parametrize("name, code", [("system.js", 50781), ("system.views", 73), ("system.x", 73)])
def test_find_and_modify_of_a_system_collection_in_a_transaction_has_its_own_code(db, name, code):
    with pytest.raises(OperationFailure) as refused:
        with db.client.start_session() as session, session.start_transaction():
            db.command("findAndModify", name, query={}, remove=True, session=session)
    assert refused.value.code == code


@pytest.mark.parametrize("options, code", [
    ({"indexOptionDefaults": {"x": 1}}, 40415),
    ({"changeStreamPreAndPostImages": {}}, 40414),
    ({"idIndex": {"key": {"a": 1}, "name": "x"}}, 2),
    ({"expireAfterSeconds": 5}, 72),
])
def test_mistakes_in_the_form_of_options_come_before_an_existing_collection(db, options, code):
    db.create_collection("there")
    with pytest.raises(OperationFailure) as refused:
        db.command("create", "there", **options)
    assert refused.value.code == code
