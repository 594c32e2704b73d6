"""`mapReduce`: what JavaScript emits by key comes back reduced, in the reply or in a collection."""
import pytest
from bson import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo.errors import OperationFailure

MAP = "function() { emit(this.k, this.v) }"
REDUCE = "function(key, values) { return Array.sum(values) }"


@pytest.fixture
def source(c):
    c.insert_many([{"_id": i, "k": k, "v": v} for i, (k, v) in enumerate([("a", 1), ("b", 2), ("a", 5), ("b", 7)])])
    return c


def map_reduce(c, out, map=MAP, reduce=REDUCE, **options):
    return c.database.command("mapReduce", c.name, map=map, reduce=reduce, out=out, **options)


def values(documents):
    return {d["_id"]: d["value"] for d in documents}


@pytest.mark.parametrize("options, expected", [
    ({}, {"a": 6, "b": 9}),
    ({"query": {"k": "a"}}, {"a": 6}),
    ({"sort": {"v": -1}, "limit": 1}, {"b": 7}),
    ({"finalize": "function(k, v) { return {t: v} }"}, {"a": {"t": 6}, "b": {"t": 9}}),
    ({"scope": {"f": 10}, "map": "function() { emit(this.k, this.v * f) }"}, {"a": 60, "b": 90}),
    ({"map": "function() { emit(undefined, 1) }"}, {None: 4}),
    ({"reduce": "function(k, v) { return v }"}, {"a": [5, 1], "b": [7, 2]}),
])
def test_results_in_the_reply(source, options, expected):
    assert values(map_reduce(source, {"inline": 1}, **options)["results"]) == expected


def test_a_document_of_the_scope_that_is_not_changed_keeps_its_types(source):
    scope = {"s": {"l": [1, 2], "d": DatetimeMS(-2 ** 63), "n": 1}}
    options = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    for map, expected in [("emit(s, 1)", scope["s"]), ("s.n = 2; emit(s, 1)", {"l": [1.0, 2.0], "d": DatetimeMS(0), "n": 2})]:
        reply = source.database.with_options(options).command(
            "mapReduce", source.name, map=f"function() {{ {map} }}", reduce=REDUCE, out={"inline": 1}, scope=scope,
            codec_options=options)
        assert repr(reply["results"][0]["_id"]) == repr(expected)


def test_results_in_a_collection(source):
    target = source.database[source.name + "_out"]
    assert map_reduce(source, target.name)["result"] == target.name
    assert values(target.find()) == {"a": 6, "b": 9}
    target.insert_one({"_id": "z", "value": 1})
    map_reduce(source, {"merge": target.name})
    assert values(target.find()) == {"a": 6, "b": 9, "z": 1}
    map_reduce(source, {"reduce": target.name}, finalize="function(k, v) { return v * 100 }")
    assert values(target.find()) == {"a": 60600, "b": 90900, "z": 1}


@pytest.mark.parametrize("options, code", [
    ({"map": "function("}, 139), ({"map": "function() { throw 1 }"}, 8), ({"map": "function() { emit(1) }"}, 31220),
    ({"map": 5}, 2), ({"limit": 0}, 15958), ({"out": {"inline": 0}}, 2), ({"out": {"replace": "system.x"}}, 17385),
    ({"query": {"$nope": 1}}, 2), ({"nope": 1}, 40415),
])
def test_what_is_refused(source, options, code):
    with pytest.raises(OperationFailure) as failed:
        map_reduce(source, **{"out": {"inline": 1}, **options})
    assert failed.value.code == code


MB = 1 << 20


@pytest.mark.parametrize("emitted, code", [
    ("1, 'x'.repeat(%d)" % (17 * MB), 17260), ("'x'.repeat(%d), 1" % (17 * MB), 17260),
    ("1, {a: 'x'.repeat(%d), b: 'x'.repeat(%d)}" % (9 * MB, 9 * MB), 17260),
    # Key and value are one document on their way.
    ("'x'.repeat(%d), 'x'.repeat(%d)" % (9 * MB, 9 * MB), 17260),
    ("1, 'x'.repeat(%d)" % (16 * MB), 16493), ("'x'.repeat(%d), 1" % (16 * MB), 16493),
    ("1, ['x'.repeat(%d)]" % (16 * MB), 16493), ("1, {a: 'x'.repeat(%d)}" % (16 * MB), 31392),
    ("1, 'x'.repeat(%d)" % (16 * MB - 20), 31392), ("1, 'x'.repeat(%d)" % (70 * MB), 13548),
])
def test_what_is_too_large_to_emit(source, emitted, code):
    with pytest.raises(OperationFailure) as failed:
        map_reduce(source, {"inline": 1}, map="function() { emit(%s) }" % emitted)
    assert failed.value.code == code, str(failed.value)[:200]


@pytest.mark.parametrize("returned, code", [
    ("'x'.repeat(%d)" % (17 * MB), 10334), ("'x'.repeat(%d)" % (16 * MB), 16493),
    ("{a: 'x'.repeat(%d)}" % (17 * MB), 17260), ("['x'.repeat(%d)]" % (17 * MB), 17260),
    ("['x'.repeat(%d)]" % (16 * MB), 16493), ("{a: 'x'.repeat(%d)}" % (70 * MB), 13548),
])
@pytest.mark.parametrize("by", ["reduce", "finalize"])
def test_what_is_too_large_to_return(source, by, returned, code):
    with pytest.raises(OperationFailure) as failed:
        map_reduce(source, {"inline": 1}, **{by: "function(k, v) { return %s }" % returned})
    assert failed.value.code == code, str(failed.value)[:200]


def test_values_are_reduced_as_many_at_once_as_a_document_may_hold(db):
    db.c.insert_many([{"_id": i} for i in range(17)])

    def lengths(size, **more):
        reply = db.command("mapReduce", "c", map=Code("function() { emit(1, 'x'.repeat(%d)) }" % size),
                           reduce=Code("function(k, v) { return v.length }"), out={"inline": 1}, **more)
        return [one["value"] for one in reply["results"]]
    assert lengths(100_000) == [17]
    # Sixteen, then what they became with the last.
    assert lengths(1_000_000) == [2]
    assert lengths(5_000_000, limit=8) == [3]
    with pytest.raises(OperationFailure) as failed:
        lengths(8_400_000, limit=2)
    assert failed.value.code == 31392


@pytest.mark.parametrize("out, told", [
    ({"inline": 1}, 72), ({"inline": 0}, 72), ({"inline": 1, "x": 1}, 72),
    ("z", 0), ({"replace": "z"}, 0), ({"merge": "z"}, 0), ({"reduce": "z"}, 0), ({}, 2), (5, 2),
])
def test_a_write_concern_is_taken_where_results_are_written(c, out, told):
    reply = c.database.command("mapReduce", c.name, map="function() {}", reduce="function() {}", out=out,
                               writeConcern={"w": 1}, check=False)
    assert reply.get("code", 0) == told
