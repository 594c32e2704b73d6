"""Fields that come twice, in commands and in what is within them. Recorded from mongod 6.0."""
import struct
import urllib.parse

import bson
import pytest
import raw


class Fields(list):
    """A document as pairs of names and values; names may repeat."""

    def encoded(self):
        return framed(b"".join(element(name, value) for name, value in self))


def framed(elements):
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def element(name, value):
    if isinstance(value, Fields):
        return b"\x03" + name.encode() + b"\0" + value.encoded()
    if isinstance(value, list):
        elements = b"".join(element(str(at), one) for at, one in enumerate(value))
        return b"\x04" + name.encode() + b"\0" + framed(elements)
    return bson.encode({name: value})[4:-1]


def fields(value, *repeated):
    """A document with each field of `repeated` twice, at any depth."""
    if isinstance(value, Fields):
        return value
    if isinstance(value, dict):
        pairs = [(name, fields(one, *repeated)) for name, one in value.items()]
        return Fields(pair for name, one in pairs for pair in [(name, one)] * (2 if name in repeated else 1))
    return [fields(one, *repeated) for one in value] if isinstance(value, list) else value


@pytest.fixture
def answer(uri, db):
    """Runs a command, and returns the code and the message of its first error, or its reply."""
    db.c.insert_many([{"_id": number, "a": number, "z": [1, 2]} for number in range(1, 4)])
    address = urllib.parse.urlparse(uri)

    def ask(command):
        with raw.Raw(address.port, address.hostname) as connection:
            body = Fields(command + [("$db", db.name)])
            sections = b"\0" + body.encoded()
            connection.socket.sendall(struct.pack("<iiiiI", 20 + len(sections), 1, 0, 2013, 0) + sections)
            reply = connection.reply()
        error = reply["writeErrors"][0] if reply.get("writeErrors") else reply
        return f"{error['code']} {error['errmsg']}" if "errmsg" in error else reply

    return ask


def once(place):
    return f"40413 BSON field '{place}' is a duplicate field"


@pytest.mark.parametrize("command, expected", [
    ([("ping", 1), ("a", 1), ("a", 1)], once("APIParametersFromClient.a")),
    ([("ping", 1), ("ping", 1)], once("APIParametersFromClient.ping")),
    ([("hello", 1), ("", 1), ("", 1)], once("APIParametersFromClient")),
    ([("nonsense", 1), ("a", 1), ("a", 1)], "59 no such command: 'nonsense'"),
    ([("ping", 1), ("b", 1), ("a", 1), ("a", 1), ("b", 1)], once("APIParametersFromClient.a")),
    # It is found before all other mistakes, except of a field of the Stable API before it.
    ([("ping", 1), ("lsid", 5), ("a", 1), ("a", 1)], once("APIParametersFromClient.a")),
    ([("find", "c"), ("filter", 5), ("filter", Fields())], once("APIParametersFromClient.filter")),
    ([("ping", 1), ("a", 1), ("a", 1), ("apiVersion", 5)], once("APIParametersFromClient.a")),
    ([("ping", 1), ("apiVersion", 5), ("a", 1), ("a", 1)],
     "14 BSON field 'APIParametersFromClient.apiVersion' is the wrong type 'int', expected type 'string'"),
    ([("find", "c"), ("limit", None), ("limit", None)], once("APIParametersFromClient.limit")),
    ([("ping", 1)] + [(f"f{number}", 1) for number in range(100)] + [("f57", 1)], once("APIParametersFromClient.f57")),
])
def test_a_field_of_a_command_comes_once(answer, command, expected):
    assert answer(Fields(command)) == expected


AGGREGATE = {"aggregate": "c", "pipeline": [], "cursor": {}}


@pytest.mark.parametrize("command, repeated, expected", [
    ({**AGGREGATE, "cursor": {"batchSize": 1}}, "batchSize", once("cursor.batchSize")),
    ({"delete": "c", "deletes": [{"q": {}, "limit": 1}]}, "limit", once("delete.deletes.limit")),
    ({"delete": "c", "deletes": [{"q": {}, "limit": 1}], "writeConcern": {"w": 1}}, "w", once("WriteConcernOptions.w")),
    ({"delete": "c", "deletes": [{"q": {}, "limit": 1}], "writeConcern": {"w": None}}, "w", once("WriteConcernOptions.w")),
    ({"find": "c", "readConcern": {"provenance": "clientSupplied"}}, "provenance",
     once("ReadConcernArgs::parse.provenance")),
    ({"find": "c", "collation": {"locale": "en"}}, "locale", once("collation.locale")),
    ({"explain": {"find": "c", "limit": 1}}, "limit", once("FindCommandRequest.limit")),
    ({"update": "c", "updates": [{"q": {}, "u": {"$push": {"z": {"$each": [1]}}}}]}, "$each",
     "2 Only one $each is supported."),
    ({"update": "c", "updates": [{"q": {}, "u": {"$push": {"z": {"$each": [1], "$slice": 2}}}}]}, "$slice",
     "2 Only one $slice is supported."),
    ({"mapReduce": "c", "map": "function() {}", "reduce": "function() {}", "out": {"replace": "d", "db": "e"}}, "db",
     "2 'out' supports only output type with collection name, optional 'sharded' and optional 'db'"),
])
def test_a_field_within_a_command_comes_once(answer, command, repeated, expected):
    assert answer(fields(command, repeated)) == expected


@pytest.mark.parametrize("stage, repeated, place", [
    ({"$unionWith": {"coll": "d", "pipeline": []}}, "coll", "$unionWith.coll"),
    ({"$setWindowFields": {"partitionBy": 1, "output": {}}}, "partitionBy", "$setWindowFields.partitionBy"),
    ({"$setWindowFields": {"partitionBy": None, "output": {}}}, "partitionBy", "$setWindowFields.partitionBy"),
    ({"$setWindowFields": {"sortBy": {"a": 1}, "output": {}}}, "sortBy", "$setWindowFields.sortBy"),
    ({"$densify": {"field": "a", "range": {"step": 1, "bounds": "full"}}}, "field", "$densify.field"),
    ({"$densify": {"field": "a", "range": {"step": 1, "bounds": "full"}}}, "bounds", "$densify.range.bounds"),
    ({"$fill": {"sortBy": {"a": 1}, "output": {"a": {"method": "locf"}}}}, "sortBy", "$fill.sortBy"),
    ({"$fill": {"sortBy": {"a": 1}, "output": {"a": {"method": "locf"}}}}, "method", "$fill.method"),
    ({"$merge": {"into": {"coll": "d"}, "on": "_id"}}, "on", "$merge.on"),
    ({"$merge": {"into": {"coll": "d"}, "on": "_id"}}, "coll", "into.coll"),
    ({"$replaceRoot": {"newRoot": "$a"}}, "newRoot", "$replaceRoot.newRoot"),
    ({"$collStats": {"count": {}}}, "count", "$collStats.count"),
    ({"$collStats": {"storageStats": {"scale": 1}}}, "scale", "$collStats.storageStats.scale"),
    ({"$collStats": {"latencyStats": {"histograms": True}}}, "histograms", "$collStats.latencyStats.histograms"),
])
def test_a_field_of_a_stage_comes_once(answer, stage, repeated, place):
    assert answer(fields({**AGGREGATE, "pipeline": [stage]}, repeated)) == once(place)


@pytest.mark.parametrize("stage, repeated", [
    ({"$unionWith": {"coll": "d", "pipeline": None}}, None),
    ({"$densify": {"field": "a", "partitionByFields": [], "range": {"step": 1, "bounds": "full", "unit": None}}}, "unit"),
    ({"$setWindowFields": {"sortBy": None, "output": {"x": {"$sum": 1}}}}, "sortBy"),
    ({"$merge": {"into": {"db": None, "coll": "d"}, "let": None}}, "let"),
    ({"$collStats": {"count": None}}, "count"),
])
def test_null_counts_as_absent(answer, stage, repeated):
    reply = answer(fields({**AGGREGATE, "pipeline": [stage]}, repeated))
    expected = "14 'pipeline' option must be specified as an array" if repeated is None else 1
    assert (reply if isinstance(reply, str) else reply["ok"]) == expected


def test_lists_that_come_twice_follow_each_other_and_of_others_the_last_counts(answer):
    bucket = Fields([("groupBy", "$a"), ("boundaries", [0, 2]), ("boundaries", [3, 9])])
    top = Fields([("sortBy", {"a": 2}), ("sortBy", [1]), ("output", "$a")])
    zipped = Fields([("inputs", ["$z"]), ("inputs", ["$z"]), ("useLongestLength", True), ("defaults", [1]), ("defaults", [2])])
    for stage, expected in [
        (Fields([("$bucket", bucket)]), [{"_id": 0, "count": 1}, {"_id": 2, "count": 1}, {"_id": 3, "count": 1}]),
        (Fields([("$group", fields({"_id": 1, "n": {"$top": top}}))]), [{"_id": 1, "n": 1}]),
        (Fields([("$project", fields({"_id": 0, "z": {"$zip": zipped}}))]), [{"z": [[1, 1], [2, 2]]}] * 3),
    ]:
        assert answer(fields({**AGGREGATE, "pipeline": [stage]}))["cursor"]["firstBatch"] == expected
