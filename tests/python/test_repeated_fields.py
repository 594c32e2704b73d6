"""Fields that come twice, in commands and in what is within them. Recorded from mongod 6.0."""
import struct
import urllib.parse

import bson
import pytest
import raw
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument


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
    ({"$densify": {"field": "a", "range": {"step": 1, "bounds": "full", "unit": "day"}}}, "unit", "$densify.range.unit"),
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


@pytest.mark.parametrize("more, expected", [
    ([("partitionBy", 1)], once("$setWindowFields.partitionBy")),
    ([("x", 1)], "40415 BSON field '$setWindowFields.x' is an unknown field."),
    ([("sortBy", 1)], "14 BSON field '$setWindowFields.sortBy' is the wrong type 'int', expected type 'object'"),
    ([], "40414 BSON field '$setWindowFields.output' is missing but a required field"),
    ([("output", {})], "168 Unrecognized expression '$nope'"),
], ids=str)
def test_the_fields_of_windows_are_checked_before_an_expression(answer, more, expected):
    stage = Fields([("partitionBy", fields({"$nope": 1})), *((name, fields(value)) for name, value in more)])
    assert answer(fields({**AGGREGATE, "pipeline": [fields({"$setWindowFields": stage})]})) == expected


@pytest.mark.parametrize("twice", [(None, [1, 2]), ([1, 2], None), (None, None), ("full", 1)], ids=str)
def test_the_bounds_of_a_range_come_once_also_as_null(answer, twice):
    reach = Fields([("step", 1), *(("bounds", bounds) for bounds in twice)])
    stage = fields({"$densify": Fields([("field", "a"), ("range", reach)])})
    assert answer(fields({**AGGREGATE, "pipeline": [stage]})) == once("$densify.range.bounds")


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


@pytest.mark.parametrize("argument, expected", [
    ([("pipeline", []), ("pipeline", "x")], once("$unionWith.pipeline")),
    ([("pipeline", []), ("pipeline", None)], once("$unionWith.pipeline")),
    ([("pipeline", [5]), ("pipeline", [])], "14 Each element of the 'pipeline' array must be an object"),
    ([("pipeline", [5]), ("bogus", 1)], "14 Each element of the 'pipeline' array must be an object"),
])
def test_the_first_mistake_of_a_union_counts(answer, argument, expected):
    stage = Fields([("$unionWith", Fields([("coll", "d"), *argument]))])
    assert answer(fields({**AGGREGATE, "pipeline": [stage]})) == expected


def test_lists_that_come_twice_follow_each_other_and_of_others_the_last_counts(answer):
    bucket = Fields([("groupBy", "$a"), ("boundaries", [0, 2]), ("boundaries", [3, 9])])
    outputs = Fields([("groupBy", "$a"), ("boundaries", [0, 9]), ("output", {"n": {"$sum": 1}}), ("output", {"m": {"$max": "$a"}})])
    top = Fields([("sortBy", {"a": 2}), ("sortBy", [1]), ("output", "$a")])
    zipped = Fields([("inputs", ["$z"]), ("inputs", ["$z"]), ("useLongestLength", True), ("defaults", [1]), ("defaults", [2])])
    for stage, expected in [
        (Fields([("$bucket", fields({"groupBy": "$a", "boundaries": [0, 9], "output": {"n": {"$sum": 1}}}, "output"))]),
         [{"_id": 0, "n": 3}]),
        (Fields([("$bucket", outputs)]), [{"_id": 0, "n": 3, "m": 3}]),
        (Fields([("$bucketAuto", Fields([("groupBy", "$b"), ("buckets", 1), *outputs[2:], ("output", {})]))]),
         [{"_id": {"min": None, "max": None}, "n": 3, "m": 3}]),
        (Fields([("$bucket", bucket)]), [{"_id": 0, "count": 1}, {"_id": 2, "count": 1}, {"_id": 3, "count": 1}]),
        (Fields([("$group", fields({"_id": 1, "n": {"$top": top}}))]), [{"_id": 1, "n": 1}]),
        (Fields([("$project", fields({"_id": 0, "z": {"$zip": zipped}}))]), [{"z": [[1, 1], [2, 2]]}] * 3),
    ]:
        assert answer(fields({**AGGREGATE, "pipeline": [stage]}))["cursor"]["firstBatch"] == expected


WRONG_HINT = "9 Hint must be a string or an object"
WRONG_UPDATE = "9 Update argument must be either an object or an array"

NO_DOCUMENT = "14 BSON field 'update.updates.arrayFilters.0' is the wrong type 'int', expected type 'object'"


def statement(**pairs):
    return [("q", {}), *((name.rstrip("2"), value) for name, value in pairs.items())]


@pytest.mark.parametrize("update, expected", [
    ([("u", 1), ("u", {})], WRONG_UPDATE),
    (statement(u=1, bogus=1), WRONG_UPDATE),
    (statement(bogus=1, u=1), "40415 BSON field 'update.updates.bogus' is an unknown field."),
    (statement(u=1, multi="x"), WRONG_UPDATE),
    (statement(u={}, u2=1), once("update.updates.u")),
    (statement(u={}, u2=None), once("update.updates.u")),
    (statement(u={}, hint={}, hint2=1), once("update.updates.hint")),
    (statement(u={}, hint=1, hint2={}), WRONG_HINT),
    (statement(u={}, arrayFilters=[1], arrayFilters2=[]), NO_DOCUMENT),
    (statement(u={}, arrayFilters=[], arrayFilters2=[1]), once("update.updates.arrayFilters")),
    (statement(u={}, arrayFilters=[None, {"a": 1}], arrayFilters2=[]), once("update.updates.arrayFilters")),
    (statement(arrayFilters=[None, 1], u=1), NO_DOCUMENT.replace("Filters.0", "Filters.1")),
    (statement(u={}, arrayFilters=[1], bogus=1), NO_DOCUMENT),
    (statement(u={}, multi=True, multi2={}),
     "14 BSON field 'update.updates.multi' is the wrong type 'object', expected type 'bool'"),
])
def test_the_first_mistake_of_a_statement_counts(answer, update, expected):
    assert answer(Fields([("update", "c"), ("updates", [Fields(update)])])) == expected


@pytest.mark.parametrize("collation, expected", [
    ([("backwards", True), ("backwards", None)], once("collation.backwards")),
    ([("backwards", None), ("bogus", 1)], "14 Field 'backwards' should be a boolean value, but found: null"),
    ([("strength", 1), ("strength", 2)], once("collation.strength")),
    ([("strength", 1), ("strength", 9)], once("collation.strength")),
    ([("strength", 1), ("strength", "en")],
     "14 BSON field 'collation.strength' is the wrong type 'string', expected types '[long, int, decimal, double']"),
    ([("strength", 9), ("locale", "en")], "51024 BSON field 'strength' value must be <= 5, actual value '9'"),
])
def test_the_type_of_a_collations_option_is_checked_first(answer, collation, expected):
    command = [("find", "c"), ("collation", Fields([("locale", "en"), *collation]))]
    assert answer(Fields(command)) == expected


@pytest.mark.parametrize("concern, is_taken", [
    ([("level", "majority"), ("level", 1)], True),
    ([("level", "local"), ("level", "nonsense")], True),
    ([("level", 1), ("level", "majority")], False),
])
def test_the_first_level_of_a_read_concern_counts(answer, concern, is_taken):
    reply = answer(Fields([("find", "c"), ("readConcern", Fields(concern))]))
    assert (not isinstance(reply, str)) == is_taken


@pytest.mark.parametrize("window, expected", [
    ([("range", "x"), ("range", [0, 1])], "9 Window bounds must be a 2-element array: range: \"x\""),
    ([("range", "x"), ("unit", "day"), ("unit", "day")], "9 Window bounds must be a 2-element array: range: \"x\""),
    ([("range", ["x", 1]), ("range", [0, 1])],
     "9 'window' field that specifies range cannot have other fields besides 'unit'"),
    ([("documents", "x"), ("documents", [0, 1])], "9 'window' field that specifies documents cannot have other fields"),
])
def test_of_a_window_with_two_bounds_the_first_are_looked_at(answer, window, expected):
    output = {"w": Fields([("$sum", "$a"), ("window", Fields(window))])}
    stage = {"$setWindowFields": {"sortBy": {"_id": 1}, "output": output}}
    assert answer(fields({**AGGREGATE, "pipeline": [stage]})) == expected


def test_of_a_variable_that_is_defined_twice_the_last_value_counts(answer):
    twice = Fields([("v", 1), ("v", 2)])
    lookup = Fields([("from", "c"), ("let", twice), ("pipeline", [{"$limit": 1}, {"$project": {"_id": 0, "v": "$$v"}}]),
                     ("as", "j")])
    show = [{"$limit": 1}, {"$project": {"_id": 0, "v": "$$v"}}]
    for command, expected in [
        (Fields([("aggregate", "c"), ("pipeline", show), ("cursor", {}), ("let", twice)]), [{"v": 2}]),
        (Fields([("aggregate", "c"), ("cursor", {}), ("pipeline", [
            Fields([("$limit", 1)]), Fields([("$lookup", lookup)]), Fields([("$project", {"_id": 0, "j": 1})])])]),
         [{"j": [{"v": 2}]}]),
        (Fields([("find", "c"), ("filter", {"$expr": {"$eq": ["$$v", 1]}}),
                 ("let", Fields([("v", 1), ("v", "$$REMOVE")]))]), []),
    ]:
        assert answer(command)["cursor"]["firstBatch"] == expected


@pytest.fixture
def twice(answer):
    """A collection of one document with fields that come twice."""
    def stored(*pairs):
        answer(Fields([("delete", "twice"), ("deletes", [{"q": {}, "limit": 0}])]))
        document = Fields([("_id", 1), *pairs])
        assert answer(Fields([("insert", "twice"), ("documents", [document])]))["n"] == 1

        def find(projection):
            text = answer(Fields([("find", "twice"), ("projection", projection)]))["cursor"]["firstBatch"][0]
            return text
        return find

    return stored


def test_an_exclusion_hides_all_fields_of_a_name(answer, twice):
    find = twice(("a", 1), ("b", 5), ("a", 2), ("x", Fields([("a", 1), ("b", 5), ("a", 2)])))
    assert find({"a": 0, "x.a": 0}) == {"_id": 1, "b": 5, "x": {"b": 5}}
    assert find({"a": 0, "b": 0, "x.b": 0, "x.a": 0}) == {"_id": 1, "x": {}}
    # A driver shows the last of two.
    assert find({"a": 1, "d": "$b"}) == {"_id": 1, "a": 1, "d": 5}
    assert find({"x.a": 1, "x.d": "$b"}) == {"_id": 1, "x": {"a": 1, "d": 5}}


def test_documents_are_merged_with_the_first_of_two_values(answer, twice):
    twice(("a", 1), ("b", 5), ("a", 2))
    for stages, expected in [
        ([{"$replaceWith": {"$mergeObjects": [{"a": 9}, "$$ROOT"]}}], {"_id": 1, "a": 1, "b": 5}),
        ([{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"a": 9}]}}], {"_id": 1, "a": 9, "b": 5}),
        ([{"$group": {"_id": 1, "m": {"$mergeObjects": "$$ROOT"}}}], {"_id": 1, "m": {"_id": 1, "a": 1, "b": 5}}),
    ]:
        assert answer(Fields([("aggregate", "twice"), ("pipeline", stages), ("cursor", {})]))["cursor"]["firstBatch"] == [expected]


def test_an_error_shows_the_first_of_two_values(answer, twice):
    twice(("a", 1), ("a", 2))
    stages = [{"$group": {"_id": 1, "l": {"$push": "$$ROOT"}}}, {"$replaceWith": "$l"}]
    assert "was: [{_id: 1, a: 1, a: 1}]. " in answer(Fields([("aggregate", "twice"), ("pipeline", stages), ("cursor", {})]))


@pytest.mark.parametrize("types, is_taken", [
    ([10, "date"], True), (["date", 10], True), (["timestamp", "date"], True), ([10], False),
])
def test_the_last_type_of_a_current_date_that_is_one_counts(answer, types, is_taken):
    moment = Fields([("$type", one) for one in types])
    update = Fields([("q", {}), ("u", Fields([("$currentDate", Fields([("x", moment)]))]))])
    assert isinstance(answer(Fields([("update", "c"), ("updates", [update])])), dict) == is_taken


@pytest.mark.parametrize("projection, expected", [
    ([("a.$", 1), ("a.$", 1)], "31276 Cannot specify more than one positional projection per query."),
    ([("a.$", 1), ("a", 1)], "31250 Path collision at a"),
    ([("a", {"$elemMatch": {}}), ("a.$", 1)], "31256 Cannot specify positional operator and $elemMatch."),
    ([("a", {"$elemMatch": {}}), ("b", 0), ("c.$", 1)], "31256 Cannot specify positional operator and $elemMatch."),
])
def test_a_second_positional_projection_is_refused_before_its_path_is(answer, projection, expected):
    assert answer(Fields([("find", "c"), ("filter", {"a": 1}), ("projection", Fields(projection))])) == expected


@pytest.mark.parametrize("function, expected", [
    ([("$first", "$a")], "9 saw multiple 'window' fields in '$first' expression"),
    ([("$topN", 5)], "9 saw multiple 'window' fields in '$topN' expression"),
    ([("$last", "$a"), ("bogus", 1)], "9 saw multiple 'window' fields in '$last' expression"),
    ([("$integral", 5)], "9 There can be only one 'window' field for $integral"),
    ([("$sum", "$a")], None),
    ([("$derivative", {"input": "$a"})], None),
])
def test_some_window_functions_have_one_window(answer, function, expected):
    window = ("window", {"documents": [0, 1]})
    output = Fields([("w", Fields([window, window, *function]))])
    stage = Fields([("$setWindowFields", Fields([("sortBy", {"a": 1}), ("output", output)]))])
    reply = answer(Fields([("aggregate", "c"), ("pipeline", [stage]), ("cursor", {})]))
    assert (reply if isinstance(reply, str) else None) == expected


@pytest.mark.parametrize("argument, code", [
    ([("sortBy", "x"), ("bogus", 1)], 2942507), ([("bogus", 1), ("sortBy", "x")], 2942501),
    ([("sortBy", "x")], 2942507), ([("sortBy", 1)], 2942502), ([("input", "$z"), ("sortBy", "x"), ("sortBy", 1)], 2942507),
])
def test_the_order_of_a_sorted_array_is_checked_where_it_is_read(answer, argument, code):
    stage = Fields([("$project", Fields([("x", Fields([("$sortArray", Fields(argument))]))]))])
    reply = answer(Fields([("aggregate", "c"), ("pipeline", [stage]), ("cursor", {})]))
    assert reply.startswith(str(code))


@pytest.mark.parametrize("replacement, stored", [
    ([("_id", 7), ("_id", 8)], [("_id", 7), ("_id", 8)]),
    ([("x", 1), ("_id", 7), ("_id", 8)], [("_id", 7), ("x", 1), ("_id", 8)]),
])
def test_a_replacement_may_have_two_ids(answer, db, replacement, stored):
    collection = db.get_collection("c", CodecOptions(document_class=RawBSONDocument))
    for there in (False, True):
        update = Fields([("q", {"_id": 7}), ("u", Fields(replacement)), ("upsert", True)])
        reply = answer(Fields([("update", "c"), ("updates", [update])]))
        assert reply["n"] == 1 and ("upserted" in reply) != there
        assert collection.find_one({"_id": 7}).raw == Fields(stored).encoded()


@pytest.mark.parametrize("replacement, expected", [
    ([("_id", 7), ("_id", [1])], "53 The '_id' value cannot be of type array"),
    ([("_id", 7), ("x", 1), ("_id", bson.Regex("a"))], "53 The '_id' value cannot be of type regex"),
    ([("_id", 7), ("_id", {"$x": 1})],
     "52 The dollar ($) prefixed field '$x' in '_id.$x' is not allowed in the context of an update's replacement document. "
     "Consider using an aggregation pipeline with $replaceWith."),
])
def test_each_id_of_a_replacement_is_checked(answer, db, replacement, expected):
    for there in (False, True):
        update = Fields([("q", {"_id": 7}), ("u", Fields(replacement)), ("upsert", True)])
        assert answer(Fields([("update", "c"), ("updates", [update])])) == expected
        db.c.replace_one({"_id": 7}, {}, upsert=True)


@pytest.mark.parametrize("second, graph, plain", [
    ({"0": 1}, "40415 BSON field 'from.0' is an unknown field.", None),
    ({"db": 1}, "14 BSON field 'from.db' is the wrong type 'int', expected type 'string'", None),
    (5, "40103 expected string as argument for from, found: int", "9 $lookup 'from' field must be a string, but found int"),
    ([1], "40103 expected string as argument for from, found: array",
     "9 $lookup 'from' field must be a string, but found array"),
])
def test_a_second_collection_of_a_join_is_checked_as_the_first(answer, second, graph, plain):
    froms = [("from", "x"), ("from", second)]
    options = [("startWith", "$a"), ("connectFromField", "b"), ("connectToField", "a"), ("as", "j")]
    for stage, rest, expected in (("$graphLookup", options, graph),
                                  ("$lookup", [("localField", "a"), ("foreignField", "b"), ("as", "j")], plain or graph)):
        stage = Fields([(stage, Fields(froms + rest))])
        assert answer(Fields([("aggregate", "c"), ("pipeline", [stage]), ("cursor", {})])) == expected


def test_the_stages_of_an_update_are_objects_before_another_field_is_read(answer):
    for stages in ([5], [[1]], [None]):
        for after in (("u", {"a": 1}), ("zz", 1)):
            reply = answer(Fields([("update", "c"), ("updates", [Fields([("q", {}), ("u", stages), after])])]))
            assert reply == "14 Each element of the 'pipeline' array must be an object"


@pytest.mark.parametrize("function, expected", [
    ([("$firstN", {"input": "$a", "n": 2}), ("$firstN", 1)], "9 saw multiple specifications for '$firstN' expression"),
    ([("$top", {"output": "$a", "sortBy": {"a": 1}}), ("window", {}), ("$top", 1)], "9 saw multiple specifications for '$top' expression"),
    ([("$first", 5), ("$first", "$a")], None),
    ([("$first", "$a"), ("$first", "$a"), ("zz", 1)], "9 $first got unexpected argument: zz"),
    ([("$locf", "$a"), ("window", {}), ("$locf", "$a")], "9 Cannot specify two functions in window function spec"),
    ([("window", {}), ("$locf", "$a"), ("zz", 1)], "9 Window function found an unknown argument: zz"),
    ([("window", {}), ("$locf", "$a")], "9 'window' field is not allowed in $locf"),
])
def test_of_two_window_functions_some_take_the_last(answer, function, expected):
    stage = Fields([("$setWindowFields", Fields([("sortBy", {"a": 1}), ("output", Fields([("w", Fields(function))]))]))])
    reply = answer(Fields([("aggregate", "c"), ("pipeline", [stage]), ("cursor", {})]))
    assert (reply if isinstance(reply, str) else None) == expected


def test_null_next_to_a_value_of_a_statement_is_absent(answer, db):
    def left():
        return sorted(doc["_id"] for doc in db.c.find())

    def changed():
        return sorted(doc["_id"] for doc in db.c.find({"z": 9}))

    for first, second in (({"a": 2}, None), (None, {"a": 2})):
        update = Fields([("q", first), ("q", second), ("u", {"$set": {"z": 9}})])
        assert answer(Fields([("update", "c"), ("updates", [update])]))["n"] == 1 and changed() == [2]
    for first, second in ((True, None), (None, True)):
        update = Fields([("q", {"a": 8}), ("u", {"$set": {"z": 8}}), ("upsert", first), ("upsert", second)])
        assert "upserted" in answer(Fields([("update", "c"), ("updates", [update])]))
        db.c.delete_one({"a": 8})
    for collation in ((None, {"locale": "xx"}), ({"locale": "xx"}, None)):
        delete = Fields([("q", {"a": 2}), ("limit", 1), ("collation", collation[0]), ("collation", collation[1])])
        assert answer(Fields([("delete", "c"), ("deletes", [delete])])).startswith("2 ")
    for first, second, rest in ((None, {"a": 2}, [1, 3]), ({"a": 3}, None, [1])):
        delete = Fields([("q", first), ("q", second), ("limit", 1)])
        assert answer(Fields([("delete", "c"), ("deletes", [delete])]))["n"] == 1 and left() == rest
    assert answer(Fields([("delete", "c"), ("deletes", [Fields([("q", None), ("q", None), ("limit", 1)])])])).startswith("40414")
