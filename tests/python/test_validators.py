"""Reports about documents that do not satisfy their collection's validator."""
import pytest
from pymongo.errors import OperationFailure, WriteError

# ---- geometries

NO_GEOMETRY = "could not find a valid geometry at the given path"
OUTSIDE = "none of the considered geometries were contained within the expression’s geometry"


def reason(db, validator, value):
    """The reason why a document with the value cannot be inserted."""
    db.drop_collection("places")
    db.create_collection("places", validator=validator)
    with pytest.raises(WriteError) as refused:
        db.places.insert_one({"p": value})
    details = refused.value.details["errInfo"]["details"]
    return details.get("details", details)["reason"]


@pytest.mark.parametrize("value, expected", [
    (1, NO_GEOMETRY),
    (None, NO_GEOMETRY),
    ([], NO_GEOMETRY),
    ({}, NO_GEOMETRY),
    ({"x": 5}, NO_GEOMETRY),
    ({"type": "Point", "coordinates": [500, 5]}, NO_GEOMETRY),
    ([1], NO_GEOMETRY),
    ([5, "x"], NO_GEOMETRY),
    ([5, 5], OUTSIDE),
    ([[5, 5]], OUTSIDE),
    ([[5, 5], 1], OUTSIDE),
    ({"x": 5, "y": 5}, OUTSIDE),
    ({"type": "Point", "coordinates": [5, 5]}, OUTSIDE),
])
def test_a_value_that_is_no_geometry_is_reported_as_that(db, value, expected):
    assert reason(db, {"p": {"$geoWithin": {"$box": [[0, 0], [2, 2]]}}}, value) == expected


def test_a_negated_geometry_that_holds_has_the_same_reason(db):
    validator = {"p": {"$not": {"$geoWithin": {"$box": [[0, 0], [2, 2]]}}}}
    assert reason(db, validator, [1, 1]).startswith("at least one of considered geometries was contained")
    assert reason(db, validator, [[1, 1]]).startswith("at least one of considered geometries was contained")
    square = {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [0, 0]]]}
    assert reason(db, {"p": {"$not": {"$geoIntersects": {"$geometry": square}}}}, square) == (
        "at least one of considered geometries intersected the expression’s geometry")


def test_below_a_field_the_elements_of_an_array_are_considered(db):
    # Two numbers are no geometries, although the array is a point.
    validator = {"p.q": {"$not": {"$geoWithin": {"$box": [[0, 0], [2, 2]]}}}}
    assert reason(db, validator, {"q": [1, 1]}) == NO_GEOMETRY
    assert reason(db, validator, {"q": [[1, 1]]}).startswith("at least one of considered geometries was contained")


# ---- validate

WARNING = "Detected one or more documents not compliant with the collection's schema. Check logs for log id 5363500."


@pytest.mark.parametrize("options, expected", [
    ({}, 2),
    ({"validationAction": "warn"}, 2),
    ({"validationLevel": "moderate"}, 2),
    ({"validationLevel": "off"}, 0),
    ({"validator": {}}, 0),
    # A condition that fails on a document is not satisfied.
    ({"validator": {"$expr": {"$divide": [1, "$a"]}}}, 1),
])
def test_validate_counts_documents_that_are_older_than_the_validator(db, options, expected):
    db.c.insert_many([{"a": a} for a in range(4)])
    db.command("collMod", "c", **{"validator": {"a": {"$gt": 1}}, **options})
    reply = db.command("validate", "c")
    assert reply["nNonCompliantDocuments"] == expected
    assert reply["warnings"] == ([WARNING] if expected else [])
    assert reply["valid"] is True
    only_metadata = db.command("validate", "c", metadata=True)
    assert "nNonCompliantDocuments" not in only_metadata
    assert only_metadata["warnings"] == []


@pytest.mark.parametrize("options, expected", [
    (["background", "full"], "with both { background: true } and { full: true } is not supported."),
    (["background", "enforceFastCount"], "with both { background: true } and { enforceFastCount: true } is not supported."),
    (["background", "repair"], "with both { background: true } and { repair: true } is not supported."),
    (["enforceFastCount", "repair"], "with both { enforceFastCount: true } and { repair: true } is not supported."),
    (["metadata", "full"], "with { metadata: true } is not supported with any other options"),
    (["metadata", "background"], "with { metadata: true } is not supported with any other options"),
    (["metadata", "enforceFastCount"], "with { metadata: true } is not supported with any other options"),
])
def test_options_of_validate_exclude_each_other(db, options, expected):
    # Also on a collection that does not exist.
    with pytest.raises(OperationFailure) as refused:
        db.command("validate", "c", **dict.fromkeys(options, True))
    assert refused.value.code == 72
    assert refused.value.details["errmsg"] == "Running the validate command " + expected


def test_validate_lists_indexes_by_name(db):
    for name in ("b", "a", "c"):
        db.c.create_index(name)
    reply = db.command("validate", "c")
    assert list(reply["keysPerIndex"]) == list(reply["indexDetails"]) == ["_id_", "a_1", "b_1", "c_1"]
