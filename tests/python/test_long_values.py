"""Values near the limits: strings of 16 megabytes in expressions, and what errors repeat of them. Recorded from mongod 6.0."""
import pytest
from pymongo.errors import OperationFailure

LENGTH = 16 * 1024 * 1024 - 100
BIG = "x" * (LENGTH - 900)
TOO_LONG = 16493


@pytest.fixture(scope="module")
def big(client):
    client.long_values.c.drop()
    client.long_values.c.insert_one({"_id": 1, "s": "x" * LENGTH})
    yield client.long_values.c
    client.drop_database("long_values")


@pytest.mark.parametrize("expression, size", [
    ({"$toUpper": "$s"}, LENGTH),
    ({"$substrCP": ["$s", 1, 16_000_000]}, 16_000_000),
    ({"$replaceAll": {"input": "$s", "find": "x", "replacement": "y"}}, LENGTH),
    ({"$trim": {"input": "$s", "chars": "y"}}, LENGTH),
    ({"$toLower": {"$concat": ["$s", "abc"]}}, LENGTH + 3),
    ({"$arrayElemAt": [{"$split": ["$s", "y"]}, 0]}, LENGTH),
    ({"$concat": ["$s", "$s"]}, None),
    ({"$replaceAll": {"input": "$s", "find": "x", "replacement": "yy"}}, None),
    ({"$reduce": {"input": {"$range": [0, 3]}, "initialValue": "", "in": {"$concat": ["$$value", "$s"]}}}, None),
])
def test_a_string_of_an_expression_has_at_most_16_megabytes(big, expression, size):
    pipeline = [{"$project": {"n": {"$strLenCP": expression}}}]
    if size is None:
        with pytest.raises(OperationFailure) as failed:
            list(big.aggregate(pipeline))
        assert failed.value.code == TOO_LONG
    else:
        assert list(big.aggregate(pipeline)) == [{"_id": 1, "n": size}]


@pytest.mark.parametrize("filter, message", [
    ({"$nope": BIG}, "unknown top level operator: $nope. If you have a field name that starts with a '$' symbol, "
                     "consider using $getField or $setField."),
    ({"a": {"$nope": BIG}}, "unknown operator: $nope"),
    ({"$expr": {"$nope": BIG}}, "Unrecognized expression '$nope'"),
    ({BIG: {"$nope": 1}}, "unknown operator: $nope"),
    ({"a": {"$type": BIG}}, "Unknown type name alias: " + BIG),
    ({"a": {"$" + BIG: 1}}, "unknown operator: $" + BIG),
])
def test_an_error_repeats_what_mongod_repeats(big, filter, message):
    with pytest.raises(OperationFailure) as failed:
        big.find_one(filter)
    # A plain comparison: a failed one of such texts would be shown for minutes.
    is_same = failed.value.details["errmsg"] == message
    assert is_same, failed.value.details["errmsg"][:200]
    assert big.find_one({}, {"_id": 1}) == {"_id": 1}


PATH = ".".join(["a"] * 5_000)


@pytest.mark.parametrize("command, code", [
    ({"find": "c", "filter": {PATH: 1}}, 5729100),
    ({"find": "c", "projection": {PATH: 1}}, 15),
    ({"find": "c", "sort": {PATH: 1}}, 15),
    ({"distinct": "c", "key": PATH}, 15),
    ({"createIndexes": "c", "indexes": [{"key": {PATH: 1}, "name": "long"}]}, 67),
    ({"aggregate": "c", "pipeline": [{"$project": {PATH: 1}}], "cursor": {}}, 15),
    ({"aggregate": "c", "pipeline": [{"$project": {"x": "$" + PATH}}], "cursor": {}}, 15),
    ({"aggregate": "c", "pipeline": [{"$unwind": "$" + PATH}], "cursor": {}}, 15),
])
def test_a_path_of_5000_parts(big, command, code):
    with pytest.raises(OperationFailure) as failed:
        big.database.command(command)
    assert failed.value.code == code
