"""Stages that tell of the server and its collections."""
import datetime

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from pymongo.errors import OperationFailure


def test_index_stats_counts_what_queries_use(c):
    c.insert_many([{"k": i} for i in range(3)])
    c.create_index("k")
    assert c.count_documents({"k": 1}) == 1
    assert list(c.find({"k": 2}, {"_id": 0})) == [{"k": 2}]
    stats = {s["name"]: s for s in c.aggregate([{"$indexStats": {}}])}
    assert set(stats) == {"_id_", "k_1"} and stats["k_1"]["accesses"]["ops"] == 2
    assert stats["k_1"]["spec"]["key"] == {"k": 1}


def test_query_exec_stats_counts_scans(c):
    c.insert_one({})
    list(c.find({"x": 1}))
    stats = next(c.aggregate([{"$collStats": {"queryExecStats": {}}}]))
    assert stats["queryExecStats"]["collectionScans"]["total"] >= 1


def test_current_op_shows_itself(client):
    ours = client.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": {"command.aggregate": 1}}])
    assert [op["op"] for op in ours] == ["command"]


def test_sessions_are_listed(client):
    with client.start_session() as session:
        client.admin.command("ping", session=session)
        known = [s["_id"]["id"] for s in client.admin.aggregate([{"$listLocalSessions": {}}])]
        assert session.session_id["id"] in known


@pytest.mark.parametrize("stage, code", [
    ({"$currentOp": {}}, 73), ({"$listSessions": {}}, 73), ({"$listLocalSessions": {}}, 73), ({"$search": {}}, 6047401),
    ({"$changeStream": {"allChangesForCluster": True}}, 72), ({"$documents": [{"a": 1}]}, 73), ({"$operationMetrics": {}}, 115),
])
def test_what_needs_another_place_says_so(c, stage, code):
    with pytest.raises(OperationFailure) as failed:
        c.aggregate([stage])
    assert failed.value.code == code


@pytest.mark.parametrize("local, document, found", [
    ("a.b", {"a": [{"b": 1}, {"c": 2}]}, [1, "array"]),  # what lacks the field adds nothing to what another has
    ("a.b", {"a": [{"c": 2}]}, ["missing", "null"]),
    ("a.b", {"a": [5, {"b": 1}]}, [1, "array"]),
    ("a.b", {"a": []}, ["missing", "null"]),
    ("a.b", {"a": [[{"b": 1}]]}, ["missing", "null"]),
    ("a.0", {"a": [1]}, [1, "array"]),
    ("a.0", {"a": [{"b": 1}]}, []),
    ("a.0.b", {"a": [{"b": 1}, {"c": 2}]}, [1, "array"]),
    ("a.0.b", {"a": [[{"b": 1}]]}, [1, "array"]),
])
def test_what_a_lookup_joins_by(c, local, document, found):
    c.database.other.insert_many([{"_id": "null", "x": None}, {"_id": "missing"}, {"_id": 1, "x": 1},
                                  {"_id": "array", "x": [1, 2]}, {"_id": "empty", "x": []}])
    c.insert_one(document)
    stage = {"from": "other", "localField": local, "foreignField": "x", "as": "r"}
    reply, = c.aggregate([{"$lookup": stage}])
    assert sorted((d["_id"] for d in reply["r"]), key=str) == found


@pytest.mark.parametrize("pipeline", [[], [{"$match": {"_id": 9}}], [{"$project": {"x": "$$v"}}]])
def test_the_variables_of_a_lookup_are_computed_for_every_document(c, pipeline):
    # The joined documents are the same for all, and are read once.
    c.insert_many([{"_id": 1, "x": 1}, {"_id": 2, "x": 2}, {"_id": 3, "x": "text"}])
    stage = {"from": c.name, "let": {"v": {"$add": ["$x", 1]}}, "pipeline": pipeline, "as": "j"}
    with pytest.raises(OperationFailure, match="only supports numeric or date types") as failed:
        list(c.aggregate([{"$lookup": stage}]))
    assert failed.value.code == 14


JOINS = [
    {"$lookup": {"from": "b", "localField": "k", "foreignField": "k", "as": "j"}},
    {"$lookup": {"from": "b", "let": {"k": "$k"}, "as": "j",
                 "pipeline": [{"$match": {"$expr": {"$eq": ["$k", "$$k"]}}}]}},
    {"$graphLookup": {"from": "b", "startWith": "$k", "connectFromField": "no", "connectToField": "k", "as": "j"}},
]


@pytest.mark.parametrize("join", JOINS)
def test_what_is_unwound_at_once_may_be_larger_than_a_document(db, join):
    db.a.insert_many([{"_id": 1, "k": 1}, {"_id": 2, "k": 9}])
    for i in range(20):
        db.b.insert_one({"_id": i, "k": 1, "n": i, "s": "x" * 1_000_000})
    with pytest.raises(OperationFailure):
        list(db.a.aggregate([join]))
    unwind = {"path": "$j", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}
    groups = db.a.aggregate([join, {"$unwind": unwind}, {"$group": {
        "_id": "$k", "last": {"$max": "$i"}, "sum": {"$sum": "$j.n"}}}, {"$sort": {"_id": 1}}])
    assert list(groups) == [{"_id": 1, "last": 19, "sum": 190}, {"_id": 9, "last": None, "sum": 0}]
    behind = [{"$match": {"j.n": {"$gte": 17}, "k": 1}}, {"$count": "n"}]
    assert list(db.a.aggregate([join, {"$unwind": "$j"}, *behind])) == [{"n": 3}]
    for verbosity in ("queryPlanner", "executionStats"):
        found = db.command("explain", {"aggregate": "a", "cursor": {}, "pipeline": [join, {"$unwind": unwind}]},
                           verbosity=verbosity)
        (stage,) = found["stages"][1:]
        assert stage[next(iter(join))]["unwinding"] == {"preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}


def test_a_variable_of_the_command_may_be_without_a_value(c):
    c.insert_one({"_id": 1})
    inner = [{"$project": {"x": {"$ifNull": ["$$l", "none"]}}}]
    found = c.aggregate(inner + [{"$lookup": {"from": c.name, "pipeline": inner, "as": "r"}}], let={"l": "$$REMOVE"})
    assert list(found) == [{"_id": 1, "x": "none", "r": [{"_id": 1, "x": "none"}]}]


@pytest.mark.parametrize("zone, start, end, unit, count", [
    ("Europe/Berlin", 613974622782, 1582979696789, "hour", 269168),
    ("America/New_York", 299710146427, 294163009363, "hour", -1541),
    ("America/New_York", 299710146427, 294163009363, "minute", -92453),
    # Half an hour that the clock was put on by is no hour.
    ("Australia/Lord_Howe", 1586000000000, 1586100000000, "hour", 27),
    # Before there were zones, clocks stood at odd seconds.
    ("Europe/Berlin", -62167219200000, 1582979696789, "minute", 1062503315),
])
def test_hours_between_dates_are_those_that_pass(c, zone, start, end, unit, count):
    c.insert_one({})
    at = [{"$toDate": Int64(ms)} for ms in (start, end)]
    diff = {"startDate": at[0], "endDate": at[1], "unit": unit, "timezone": zone}
    assert next(c.aggregate([{"$project": {"n": {"$dateDiff": diff}}}]))["n"] == count


def test_nothing_is_moved_across_an_inhibitor(c):
    c.insert_many([{"_id": 1, "a": 0}, {"_id": 2, "a": 1}])
    stages = [{"$project": {"b": {"$divide": [1, "$a"]}}}, {"$match": {"_id": 2}}]
    assert list(c.aggregate(stages)) == [{"_id": 2, "b": 1}]
    apart = {"$_internalInhibitOptimization": {}}
    with pytest.raises(OperationFailure) as failed:
        c.aggregate([stages[0], apart, stages[1]])
    assert failed.value.code == 2
    for wrong, code in (({"a": 1}, 9), (1, 14)):
        with pytest.raises(OperationFailure) as failed:
            c.aggregate([{"$_internalInhibitOptimization": wrong}])
        assert failed.value.code == code


def fails(c, stages):
    try:
        list(c.aggregate(stages))
    except OperationFailure as failed:
        assert failed.code == 34471
        return True
    return False


@pytest.mark.parametrize("condition, is_behind", [
    ({"a": 5}, False),
    ({"a": {"$size": 2}}, False),
    ({"$or": [{"a": 5}, {"a": 6}]}, False),
    ({"$jsonSchema": {"required": ["q"]}}, False),
    # An `$and` of several conditions is added after the others.
    ({"$jsonSchema": {"required": ["q", "z"]}}, True),
    ({"a": {"$all": [5, 6]}}, True),
    ({"$and": [{"a": {"$gt": 5}}, {"a": {"$lt": 9}}]}, True),
])
def test_a_match_behind_other_stages_tries_its_conditions_as_they_are_written(c, condition, is_behind):
    c.insert_one({"_id": 1, "a": 1})
    failing = {"$expr": {"$strLenCP": "$x"}}
    apart = {"$_internalInhibitOptimization": {}}
    for conditions, is_tried_first in ([failing, condition], True), ([condition, failing], is_behind):
        both = {"$match": {"$and": conditions}}
        assert fails(c, [apart, both]) == is_tried_first
        assert fails(c, [{"$facet": {"x": [both]}}]) == is_tried_first
        # A query has an order of its own.
        assert not fails(c, [both])


def test_an_expression_of_a_match_behind_other_stages_is_computed_as_theirs(c):
    c.insert_one({"_id": 1, "x": 1})
    condition = {"$match": {"$expr": {"$setIsSubset": ["$x", []]}}}
    for stages, code in ([condition], 17046), ([{"$limit": 3}, condition], 17310):
        with pytest.raises(OperationFailure) as failed:
            c.aggregate(stages)
        assert failed.value.code == code


def test_a_match_behind_a_union_is_asked_of_both_sides(c):
    other = c.database.union_other
    other.drop()
    c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
    other.insert_many([{"_id": 3, "a": 1}, {"_id": 4, "a": 2}])
    stages = [{"$unionWith": {"coll": other.name, "pipeline": [{"$set": {"b": 1}}]}}, {"$match": {"a": 1}}]
    assert list(c.aggregate(stages)) == [{"_id": 1, "a": 1}, {"_id": 3, "a": 1, "b": 1}]
    plan = c.database.command("explain", {"aggregate": c.name, "pipeline": stages, "cursor": {}})
    front, union = plan["stages"]
    assert front["$cursor"]["queryPlanner"]["parsedQuery"] == {"a": {"$eq": 1}}
    assert "$unionWith" in union
    other.drop()


def test_documents_made_by_densify_say_what_the_next_one_says_of_its_partition(c):
    c.insert_many([{"_id": 2, "x": 5}, {"_id": 4, "x": Int64(5)}, {"_id": 6, "x": 5.0}])
    range_ = {"step": 1, "bounds": [1, 9]}
    stage = {"$densify": {"field": "_id", "range": range_, "partitionByFields": ["x"]}}
    found = list(c.aggregate([stage, {"$project": {"t": {"$type": "$x"}}}]))
    kinds = [("int", 1), ("int", 2), ("long", 3), ("long", 4), ("double", 5), ("double", 6), ("int", 7), ("int", 8)]
    assert [(made["t"], made["_id"]) for made in found] == kinds


@pytest.mark.parametrize("values, step, bounds, made", [
    # A document replaces the value that rounding has moved after it.
    ([0.3, 0.4, 0.6000000000000001, 1], 0.1, "full", [0.5, 0.6, 0.7, 0.7999999999999999, 0.8999999999999999, 0.9999999999999999]),
    ([0.3, 0.3000000000000007, 26], 25, "full", [25.3]),
    ([1e-17], 1, [-3, 3], [-3, -2, -1, 0, 1, 2]),
    # So little below a step is a step from the value before, if that was missing and the bounds
    # are explicit.
    ([-1e-17], 1, [-3, 3], [-3, -2, -1, 1.0, 2.0]),
    ([-1, -1e-17], 1, [-3, 3], [-3, -2, 0, 1, 2]),
    ([-3, -1e-17, 3], 1, "full", [-2, -1, 0, 1, 2]),
])
def test_the_grid_of_densify_is_that_of_doubles(c, values, step, bounds, made):
    c.insert_many([{"d": value} for value in values])
    found = c.aggregate([{"$densify": {"field": "d", "range": {"step": step, "bounds": bounds}}}])
    assert repr([doc["d"] for doc in found if "_id" not in doc]) == repr(made)


@pytest.mark.parametrize("base, exponent, value", [
    (Decimal128("0"), Decimal128("-0"), None), (0, Decimal128("-0"), None), (Decimal128("0"), -0.0, None),
    (0.0, -0.0, 1.0), (Decimal128("0"), 0, Decimal128("1.000000000000000000000000000000000")),
])
def test_a_negative_decimal_zero_is_a_negative_exponent(c, base, exponent, value):
    c.insert_one({"b": base, "e": exponent})
    stages = [{"$project": {"_id": 0, "v": {"$pow": ["$b", "$e"]}}}]
    if value is None:
        with pytest.raises(OperationFailure) as failed:
            c.aggregate(stages)
        assert failed.value.code == 28764
    else:
        assert repr(next(c.aggregate(stages))["v"]) == repr(value)


def test_an_automatic_bucket_without_output_counts(c):
    c.insert_many([{"d": at} for at in range(4)])
    buckets = list(c.aggregate([{"$bucketAuto": {"groupBy": "$d", "buckets": 2, "output": {}}}]))
    assert [bucket["count"] for bucket in buckets] == [2, 2]


@pytest.mark.parametrize("depth, is_taken", [
    ("9223372036854775806.5", True), ("9223372036854775809", True), ("9223372036854777000", False), ("5.5", False),
])
def test_the_depth_of_a_graph_lookup_is_compared_as_a_double(c, depth, is_taken):
    lookup = {"from": c.name, "startWith": 1, "connectFromField": "a", "connectToField": "b", "as": "x"}
    stages = [{"$graphLookup": {**lookup, "maxDepth": Decimal128(depth)}}]
    if is_taken:
        assert list(c.aggregate(stages)) == []
    else:
        with pytest.raises(OperationFailure) as failed:
            c.aggregate(stages)
        assert failed.value.code == 40102


@pytest.mark.parametrize("rows, told", [
    ([(1, [])], "Value to be filled must be numeric or nullish, but found array"),
    ([("x", []), (1, 2)], "Value to be filled must be numeric or nullish, but found array"),
    ([("x", 1)], "Value of the sortBy field must be numeric or a date, but found string"),
    ([(1, 2), (1, "x")], "Value to be filled must be numeric or nullish, but found string"),
    ([(1, None), (1, None), ("x", "y")], "There can be no repeated values in the sort field"),
    ([(1, 2), (datetime.datetime(2020, 1, 1), 3)], "Conflicting sort value types, previously received type int, but found date"),
    # The end of a gap is not checked before the gap is filled.
    ([(1, 3), (2, None), ("x", 5)], "can't $subtract int from string"),
    ([(1, 3), (2, None), ("x", [])], "can't $subtract int from array"),
    ([(1, 3), (2, None), (datetime.datetime(2020, 1, 1), 5)], "$divide only supports numeric types, not int and date"),
    ([(1, 3), (2, None), (3, datetime.datetime(2020, 1, 1))], "$divide only supports numeric types, not date and int"),
    ([(1, 3), (2, None), (2, None), (3, 5)], "There can be no repeated values in the sort field"),
])
def test_a_linear_fill_goes_document_by_document(c, rows, told):
    c.insert_many([{"s": place, "d": value} for place, value in rows])
    with pytest.raises(OperationFailure) as failed:
        list(c.aggregate([{"$fill": {"sortBy": {"s": 1}, "output": {"d": {"method": "linear"}}}}]))
    assert failed.value.details["errmsg"] == "PlanExecutor error during aggregation :: caused by :: " + told


@pytest.mark.parametrize("function, found", [
    ({"$bottom": {"sortBy": {"k": 1}, "output": "$_id"}}, [1, 3, 3, 5, 5, 5]),
    ({"$bottomN": {"sortBy": {"k": 1}, "output": "$_id", "n": 2}}, [[2, 1], [1, 3], [1, 3], [3, 5], [3, 5], [4, 5]]),
    ({"$maxN": {"input": "$m", "n": 2}}, [[5.0, 5], [6, 5.0], [6.0, 6], [6, 6.0], [6, 6.0], [6, 6.0]]),
])
def test_of_equals_the_latest_stays_in_a_moving_window(c, function, found):
    values = [5, Int64(5), 5.0, 6, 6.0, Int64(6)]
    c.insert_many([{"_id": at, "k": at % 2, "m": value} for at, value in enumerate(values)])
    window = {**function, "window": {"documents": [-1, 2]}}
    shown = [doc["v"] for doc in c.aggregate([{"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"v": window}}}])]
    assert repr(shown).replace("Int64", "") == repr(found)


@pytest.mark.parametrize("arguments, text", [
    ({"cursor": 1}, "cursor field must be missing or an object"),
    ({"pipeline": None}, "'pipeline' option must be specified as an array"),
    ({"allowDiskUse": "x"}, "Field 'allowDiskUse' should be a boolean value, but found: string"),
])
def test_arguments_of_another_type(c, arguments, text):
    with pytest.raises(OperationFailure) as failed:
        c.database.command({"aggregate": c.name, **arguments})
    assert failed.value.code == 14 and failed.value.details["errmsg"] == text


def test_latencies_are_kept_by_collection(c):
    def latencies(**options):
        stats, = c.aggregate([{"$collStats": {"latencyStats": options}}])
        return stats["latencyStats"]

    c.insert_many([{"_id": at} for at in range(10)])
    before = latencies()
    assert len(list(c.find(batch_size=4))) == 10
    list(c.aggregate([{"$match": {"_id": 1}}]))
    c.find_one_and_update({"_id": 1}, {"$set": {"a": 1}})
    c.update_one({"_id": 2}, {"$set": {"a": 1}})
    c.create_index("a")
    with pytest.raises(OperationFailure):
        c.find_one({"$no": 1})
    after = latencies(histograms=True)
    # A find and two batches, an aggregation, and the earlier report.
    for name, more in [("reads", 5), ("writes", 2), ("commands", 1), ("transactions", 0)]:
        one = after[name]
        assert one["ops"] - before[name]["ops"] == more, name
        assert sum(bucket["count"] for bucket in one["histogram"]) == one["ops"]
        assert sum(bucket["count"] * bucket["micros"] for bucket in one["histogram"]) <= one["latency"]
    assert "histogram" not in before["reads"]
    nowhere, = c.database["nowhere"].aggregate([{"$collStats": {"latencyStats": {}}}])
    assert nowhere["latencyStats"]["reads"] == {"latency": 0, "ops": 0}
    for options in [{"histograms": 1}, {"other": True}]:
        with pytest.raises(OperationFailure) as failed:
            latencies(**options)
        assert failed.value.code in (14, 40415)


def test_a_partition_that_sort_by_names_again(c):
    """As in mongod: shown, and sorted by a query, in the direction of `sortBy`; by a stage from the least on."""
    c.insert_many([{"_id": at, "a": at} for at in range(3)])
    windows = {"$setWindowFields": {"partitionBy": "$a", "sortBy": {"a": -1}, "output": {"n": {"$sum": 1}}}}
    assert [doc["a"] for doc in c.aggregate([windows])] == [2, 1, 0]
    assert [doc["a"] for doc in c.aggregate([{"$addFields": {"x": 1}}, windows])] == [0, 1, 2]


def test_a_sort_stays_behind_a_lookup_that_it_is_moved_before(c):
    """Documents that tie for the windows come in the order of the sort before the join."""
    c.insert_many([{"_id": 3}, {"_id": 5, "x": [2]}])
    join = {"$lookup": {"from": "nothing", "localField": "d", "foreignField": "d", "as": "a.b"}}
    windows = {"$setWindowFields": {"partitionBy": "$a", "sortBy": {"c": 1}, "output": {"w": {"$documentNumber": {}}}}}
    found = c.aggregate([join, {"$sort": {"x": -1, "_id": 1}}, windows, {"$sort": {"_id": 1}}])
    assert [doc["w"] for doc in found] == [2, 1]


@pytest.mark.parametrize("stage, named", [
    ({"$indexStats": {}}, {"name": "_id_"}),
    ({"$collStats": {"count": {}}}, {"count": 2}),
])
def test_an_empty_match_keeps_the_stage_before_it(c, stage, named):
    c.insert_many([{"_id": 1}, {"_id": 2}])
    for match in ([], [{"$match": {}}], [{"$match": {}}, {"$match": {}}]):
        found, = c.aggregate([stage] + match)
        assert {name: found[name] for name in named} == named
    assert list(c.aggregate([{"$planCacheStats": {}}, {"$match": {}}])) == []


def test_an_empty_match_keeps_operations_and_sessions(client):
    for match in ([], [{"$match": {}}]):
        own = list(client.admin.aggregate([{"$currentOp": {}}] + match + [{"$match": {"command.aggregate": 1}}]))
        assert len(own) == 1 and own[0]["type"] == "op"
        with client.start_session() as session:
            client.admin.command("ping", session=session)
            listed = client.admin.aggregate([{"$listLocalSessions": {}}] + match, session=session)
            assert session.session_id["id"] in [one["_id"]["id"] for one in listed]


@pytest.mark.parametrize("paths, shown", [(["b.1", "b.0"], "b.0"), (["b.a-", "b.a.z"], "b.a.z"), (["b.a.b.c", "b.a.b.b"], "b.a.b.b")])
def test_of_several_paths_that_conflict_with_one_the_first_is_named(c, paths, shown):
    with pytest.raises(OperationFailure, match=f"Cannot specify both 'b' and '{shown}'"):
        list(c.aggregate([{"$addFields": {**dict.fromkeys(paths, 1), "b": 5}}]))


@pytest.mark.parametrize("condition, is_tried", [
    ({"x": 5}, True), ({"x": "a"}, True), ({"x": None}, False), ({"x": {"q": 1}}, False), ({"x": [1]}, False),
    ({"x": {"$gt": 5}}, True), ({"x": {"$gt": None}}, False), ({"x": {"$ne": 5}}, False), ({"x": {"$in": [5, "a"]}}, True),
    ({"x": {"$in": [5, None]}}, False), ({"x": {"$exists": True}}, False), ({"x": {"$type": "object"}}, True),
    ({"x": {"$size": 2}}, False), ({"x": {"$all": [1, None]}}, True), ({"x": {"$elemMatch": {"a": 5}}}, True),
    ({"x": {"$elemMatch": {"$eq": None}}}, False), ({"x": {"$regex": "a"}}, True), ({"x": {"$mod": [2, 1]}}, True),
    ({"x.y": 5}, True), ({"x.0": 5}, False), ({"$or": [{"x": 5}, {"y": 6}]}, True), ({"$or": [{"x": 5}, {"y": None}]}, False),
    ({"$and": [{"x": 5}, {"y": None}]}, True), ({"$nor": [{"x": 5}]}, False), ({"$expr": {"$eq": ["$x", 5]}}, False),
])
def test_conditions_on_values_are_tried_before_a_redact_too(db, condition, is_tried):
    # The expression fails on this document, unless it is rejected before.
    db.c.insert_one({"_id": 1, "d": "no array"})
    redact = {"$redact": {"$cond": [{"$setEquals": ["$d", []]}, "$$KEEP", "$$DESCEND"]}}
    for tail in ([{"$match": condition}], [{"$match": condition}, {"$match": {"_id": {"$exists": True}}}]):
        if is_tried:
            assert list(db.c.aggregate([redact, *tail])) == []
        else:
            with pytest.raises(OperationFailure) as failure:
                list(db.c.aggregate([redact, *tail]))
            assert failure.value.code == 17044


def test_a_match_behind_a_redact_uses_an_index(db):
    db.c.insert_many([{"_id": n, "x": n, "in": {"secret": n % 2 == 0, "y": n}} for n in range(20)])
    db.c.create_index("x")
    pipeline = [{"$redact": {"$cond": ["$secret", "$$PRUNE", "$$DESCEND"]}}, {"$match": {"x": {"$gt": 16}, "in.y": {"$exists": True}}}]
    assert [doc["_id"] for doc in db.c.aggregate(pipeline)] == [17, 19]
    explained = db.command("explain", {"aggregate": "c", "pipeline": pipeline, "cursor": {}}, verbosity="executionStats")
    assert explained["stages"][0]["$cursor"]["executionStats"]["totalDocsExamined"] == 3


@pytest.mark.parametrize("initial,step,result", [
    ([], {"$concatArrays": ["$$value", ["$$this"]]}, list(range(5000))),
    ("", {"$concat": ["$$value", "0123456789"]}, "0123456789" * 5000),
    ({"n": 0, "seen": []}, {"n": {"$add": ["$$value.n", "$$factor"]}, "seen": {"$concatArrays": ["$$value.seen", [["$$this", "$x"]]]}},
     {"n": 10000, "seen": [[n, "y"] for n in range(5000)]}),
])
def test_a_reduction_keeps_only_its_last_value(c, initial, step, result):
    """All the values on the way would take more than 100 MB."""
    c.insert_one({"x": "y"})
    reduce = {"$reduce": {"input": {"$range": [0, 5000]}, "initialValue": initial, "in": step}}
    found = list(c.aggregate([{"$project": {"_id": 0, "r": {"$let": {"vars": {"factor": 2}, "in": reduce}}}}]))
    assert found == [{"r": result}]


def test_objects_of_many_names_are_merged_in_order(c):
    objects = [{"k%d" % (n if n % 50 else 7): n, "l%d" % n: "x" * (n % 9)} for n in range(2_000)]
    c.insert_many([{"_id": n, "o": o} for n, o in enumerate(objects)])
    expected = {}
    for o in objects:
        expected.update(o)
    found = list(c.aggregate([{"$sort": {"_id": 1}}, {"$group": {"_id": None, "o": {"$mergeObjects": "$o"}}}]))
    assert list(found[0]["o"].items()) == list(expected.items())


@pytest.mark.parametrize("size", [1, 50, 200, 1_000])
def test_samples_of_large_collections_are_random_and_distinct(c, size):
    c.insert_many([{"_id": i} for i in range(5_000)])
    samples = [[doc["_id"] for doc in c.aggregate([{"$sample": {"size": size}}])] for _ in range(3)]
    for sample in samples:
        assert len(set(sample)) == size and set(sample) <= set(range(5_000))
    if size >= 50:
        assert samples[0] != samples[1] != samples[2]
        # Both halves have their share.
        assert 0 < sum(1 for id in samples[0] if id < 2_500) < size
    # Holes between the documents make none of them more likely; here all are read.
    c.delete_many({"_id": {"$gte": 10, "$lt": 4_990}})
    c.insert_many([{"_id": 10_000 + i} for i in range(200)])
    found = {doc["_id"] for doc in c.aggregate([{"$sample": {"size": 100}}])}
    assert len(found) == 100
    assert {doc["_id"] for doc in c.aggregate([{"$sample": {"size": 5_000}}])} == {doc["_id"] for doc in c.find()}


@pytest.mark.parametrize(
    "documents, step, created",
    [
        # One step from the partition's first document, if that is within the bounds.
        ([(1, -10)], 11, [(1, 1)]),
        ([(1, -10), (1, -5)], 14, [(1, 4)]),
        ([(1, -10)], 15, []),
        # From the lower bound otherwise, and if a document is within the bounds.
        ([(1, -10)], 10, [(1, 0)]),
        ([(1, -1), (1, 3)], 100, [(1, 0)]),
        # Of successive documents below the bounds only the first begins a partition.
        ([(1, 1), (2, -10), (3, -10), (4, -10)], 4, [(1, 0), (1, 4), (2, 0), (2, 4)]),
        ([(1, -10), (2, 1), (3, -10), (4, -10), (5, 1), (6, -10)], 11,
         [(1, 1), (2, 0), (3, 1), (5, 0), (6, 1)]),
    ],
)
def test_partitions_below_the_bounds_of_densify(c, documents, step, created):
    c.insert_many([{"_id": n, "p": p, "t": t} for n, (p, t) in enumerate(documents)])
    densify = {"field": "t", "partitionByFields": ["p"], "range": {"step": step, "bounds": [0, 5]}}
    found = c.aggregate([{"$densify": densify}, {"$match": {"_id": {"$exists": False}}}, {"$sort": {"p": 1, "t": 1}}])
    assert [(doc["p"], doc["t"]) for doc in found] == created


def test_months_of_densify_continue_from_a_day_before_the_bounds(c):
    at = datetime.datetime
    c.insert_one({"p": 1, "t": at(2020, 1, 30)})
    bounds = [at(2020, 2, 1), at(2020, 5, 1)]
    densify = {"field": "t", "partitionByFields": ["p"], "range": {"step": 1, "unit": "month", "bounds": bounds}}
    found = [doc["t"] for doc in c.aggregate([{"$densify": densify}])]
    assert found == [at(2020, 1, 30), at(2020, 2, 29), at(2020, 3, 29), at(2020, 4, 29)]


def uses(c):
    return {stats["name"]: stats["accesses"]["ops"] for stats in c.aggregate([{"$indexStats": {}}])}


@pytest.mark.parametrize("query", [{"a": None}, {"$or": [{"a": 1, "b": 1}, {"a": 2, "c": 1}]}])
def test_a_plan_that_scans_an_index_twice_uses_it_once(c, query):
    c.create_index("a")
    c.insert_one({"a": 1, "b": 1})
    c.count_documents(query)
    assert uses(c) == {"_id_": 0, "a_1": 1}


def test_indexes_of_measurements_are_shown_as_the_clients_own(db):
    db.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    db.c.create_index([("m", 1), ("t", -1)], name="first")
    db.c.create_index("a.b", name="second", hidden=True)
    for collection in (db.c, db.create_collection("v", viewOn="c", pipeline=[])):
        first, second = sorted(collection.aggregate([{"$indexStats": {}}]), key=lambda stats: stats["name"])
        assert list(first) == ["name", "host", "accesses", "spec", "key"]
        assert first["key"] == first["spec"]["key"] == {"m": 1, "t": -1}
        assert second["key"] == second["spec"]["key"] == {"a.b": 1}
        assert second["spec"]["hidden"] is True and "originalSpec" not in second["spec"]
    # The buckets have their own.
    [raw] = db["system.buckets.c"].aggregate([{"$indexStats": {}}, {"$match": {"name": "second"}}])
    assert raw["key"] == {"control.min.a.b": 1, "control.max.a.b": 1}
