"""Plans: which stages answer a query, and what they look at."""
import threading

import pytest
from bson import Int64, SON
from pymongo.errors import OperationFailure


@pytest.fixture
def filled(c):
    c.insert_many([{"_id": i, "a": i % 10, "b": i % 7, "c": i, "tags": [i % 5, "t"]} for i in range(200)])
    c.create_index([("a", 1), ("b", 1)])
    c.create_index("b")
    c.create_index([("c", -1)])
    c.create_index("tags")
    return c


def explain(c, command, verbosity="executionStats"):
    return c.database.command("explain", {**command}, verbosity=verbosity)


def shape(stage):
    """The names of the stages, each with its index, the innermost last."""
    inputs = stage.get("inputStages") or ([stage["inputStage"]] if "inputStage" in stage else [])
    own = stage["stage"] + (" " + stage["indexName"] if "indexName" in stage else "")
    return [own] + ([shape(inputs[0]) if len(inputs) == 1 else [shape(i) for i in inputs]] if inputs else [])


def flat(stage):
    """The stages of a plan without branches, in one line."""
    found, rest = [], shape(stage)
    while rest:
        found.append(rest[0])
        rest = rest[1] if len(rest) > 1 else []
    return " < ".join(found)


FINDS = [
    ({"$expr": {"$lt": ["$c", 3]}}, {}, "FETCH < IXSCAN c_-1", 3, 3),
    ({"$expr": {"$and": [{"$eq": [4, "$b"]}, {"$gt": ["$_id", "$c"]}]}}, {}, "FETCH < IXSCAN b_1", 28, 28),
    ({"$expr": {"$eq": ["$tags", 3]}}, {}, "COLLSCAN", 0, 200),
    ({"a": 1}, {}, "FETCH < IXSCAN a_1_b_1", 20, 20),
    ({"a": {"$in": [1, 2]}}, {}, "FETCH < IXSCAN a_1_b_1", 41, 40),
    ({"a": {"$gt": 1}, "b": 3}, {"hint": "a_1_b_1"}, "FETCH < IXSCAN a_1_b_1", 39, 23),
    ({"a": 1}, {"projection": {"a": 1, "b": 1, "_id": 0}}, "PROJECTION_COVERED < IXSCAN a_1_b_1", 20, 0),
    ({"a": 1}, {"projection": {"b": 1}}, "PROJECTION_SIMPLE < FETCH < IXSCAN a_1_b_1", 20, 20),
    ({"a": 1}, {"sort": {"b": -1}}, "FETCH < IXSCAN a_1_b_1", 20, 20),
    ({}, {"sort": {"c": 1}, "skip": 150, "limit": 10}, "LIMIT < FETCH < SKIP < IXSCAN c_-1", 160, 10),
    ({"a": 1}, {"sort": {"x": 1}}, "SORT < FETCH < IXSCAN a_1_b_1", 20, 20),
    ({"x": 1}, {}, "COLLSCAN", 0, 200),
    ({"_id": 7}, {}, "IDHACK", 1, 1),
    ({"tags": 3}, {}, "FETCH < IXSCAN tags_1", 40, 40),
    ({"b": {"$not": {"$gt": 1}}}, {}, "FETCH < IXSCAN b_1", 59, 58),
]


@pytest.mark.parametrize("query, options, stages, keys, docs", FINDS)
def test_a_find_takes_these_stages(filled, query, options, stages, keys, docs):
    found = explain(filled, {"find": filled.name, "filter": query, **options})
    assert flat(found["queryPlanner"]["winningPlan"]) == stages
    stats = found["executionStats"]
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == (keys, docs)


def test_each_branch_of_an_or_has_its_index(filled):
    found = explain(filled, {"find": filled.name, "filter": {"$or": [{"a": 1}, {"c": 5}]}})
    assert shape(found["queryPlanner"]["winningPlan"]) == [
        "SUBPLAN", ["FETCH", ["OR", [["IXSCAN a_1_b_1"], ["IXSCAN c_-1"]]]]]
    assert sorted(d["_id"] for d in filled.find({"$or": [{"a": 5}, {"c": 5}]})) == list(range(5, 200, 10))


def test_walks_in_one_order_are_merged(filled):
    query = {"find": filled.name, "filter": {"a": {"$in": [1, 2]}}, "sort": {"b": 1}, "limit": 5}
    plan = explain(filled, query)["queryPlanner"]["winningPlan"]
    assert shape(plan) == ["LIMIT", ["FETCH", ["SORT_MERGE", [["IXSCAN a_1_b_1"], ["IXSCAN a_1_b_1"]]]]]
    found = [d["b"] for d in filled.find({"a": {"$in": [1, 2]}}).sort("b", 1)]
    assert found == sorted(found) and len(found) == 40


COUNTS = [({"a": 1}, "COUNT < COUNT_SCAN a_1_b_1", 21, 0, 20),
          ({"a": {"$in": [1, 2]}}, "COUNT < IXSCAN a_1_b_1", 41, 0, 40),
          ({"a": 1, "x": None}, "COUNT < FETCH < IXSCAN a_1_b_1", 20, 20, 20),
          ({}, "RECORD_STORE_FAST_COUNT", 0, 0, 200)]


@pytest.mark.parametrize("query, stages, keys, docs, count", COUNTS)
def test_a_count_looks_at_keys_alone_where_it_can(filled, query, stages, keys, docs, count):
    found = explain(filled, {"count": filled.name, "query": query})
    assert flat(found["queryPlanner"]["winningPlan"]) == stages
    stats = found["executionStats"]
    assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == (keys, docs)
    assert filled.database.command("count", filled.name, query=query)["n"] == count


def test_distinct_jumps_from_value_to_value(filled):
    for query, keys, values in [({}, 7, list(range(7))), ({"b": {"$gt": 2}}, 4, [3, 4, 5, 6])]:
        found = explain(filled, {"distinct": filled.name, "key": "b", "query": query})
        assert flat(found["queryPlanner"]["winningPlan"]) == "PROJECTION_COVERED < DISTINCT_SCAN b_1"
        assert found["executionStats"]["totalKeysExamined"] == keys
        assert filled.distinct("b", query) == values


def test_all_plans_are_shown_with_what_they_did(filled):
    found = explain(filled, {"find": filled.name, "filter": {"b": 1, "c": {"$lt": 50}}}, "allPlansExecution")
    planner = found["queryPlanner"]
    tried = found["executionStats"]["allPlansExecution"]
    assert len(planner["rejectedPlans"]) == 1 and len(tried) == 2
    assert tried[0]["score"] >= tried[1]["score"]
    assert tried[0]["executionStages"]["works"] == tried[1]["executionStages"]["works"]
    assert len(planner["queryHash"]) == 8


def test_a_new_index_is_used_at_once(filled):
    query = {"find": filled.name, "filter": {"c": 5, "b": 5}}
    assert filled.find_one({"c": 5, "b": 5})["_id"] == 5
    filled.create_index([("c", 1), ("b", 1)])
    winner = explain(filled, query)["queryPlanner"]["winningPlan"]
    assert flat(winner) == "FETCH < IXSCAN c_1_b_1"
    filled.drop_index("c_1_b_1")
    assert flat(explain(filled, query)["queryPlanner"]["winningPlan"]) == "FETCH < IXSCAN c_-1"


def test_what_cannot_be_planned_is_told_with_what_was_asked(filled):
    asked = f"error processing query: ns={filled.full_name}"
    reason = "planner returned error :: caused by :: hint provided does not correspond to an existing index"
    with pytest.raises(OperationFailure) as refused:
        list(filled.find({"a": {"$gt": 1}, "b": {"$in": [2, 3]}}, {"b": 1}, hint="none", limit=3).sort("b", -1))
    assert refused.value.details["errmsg"] == (
        f"{asked} limit=3Tree: $and\n    a $gt 1\n    b $in [ 2 3 ]\nSort: {{ b: -1 }}\nProj: {{ b: 1 }}\n {reason}"
    )
    with pytest.raises(OperationFailure) as refused:
        list(filled.aggregate([{"$match": {"a": 1}}, {"$group": {"_id": "$b"}}], hint="none"))
    assert refused.value.details["errmsg"] == (
        f"{asked}Tree: a $eq 1\nSort: {{}}\nProj: {{ b: 1, _id: 0 }}\nCollation: {{ locale: \"simple\" }}\n {reason}"
    )
    # The limit is that of the command, not the number of sorted documents that are kept in case
    # others change the first.
    with pytest.raises(OperationFailure) as refused:
        filled.find_one_and_delete({"a": 1}, sort=[("b", 1)], hint="none")
    assert refused.value.details["errmsg"] == f"{asked} limit=1Tree: a $eq 1\nSort: {{ b: 1 }}\nProj: {{}}\n {reason}"


def test_an_update_that_cannot_be_planned_shows_one_document_and_its_collation(db):
    """For a single `_id` the collation is the collection's own; otherwise it is none in mongod 6.0, too."""
    c = db.create_collection("swedish", collation={"locale": "sv"})
    only = {"q": {"_id": 1}, "u": {}, "hint": "none"}
    for q, u, shown in (({"_id": 1}, {}, '{ locale: "sv", '), ({"_id": {"$eq": 1}}, {}, '{ locale: "simple" }'),
                        ({"_id": 1}, {"$set": {"a.$": 1}}, '{ locale: "simple" }'),
                        ({"a": 1}, {}, '{ locale: "simple" }')):
        reply = db.command("update", c.name, updates=[{**only, "q": q, "u": u}], check=False)
        assert f"\nCollation: {shown}" in reply["writeErrors"][0]["errmsg"], (q, u)
        asked = SON([("findAndModify", c.name), ("query", q), ("update", u), ("sort", {"b": 1}), ("hint", "none")])
        for command in (asked.copy(), SON([("explain", asked)])):
            with pytest.raises(OperationFailure) as refused:
                db.command(command)
            message = refused.value.details["errmsg"]
            assert message.startswith(f"error processing query: ns={c.full_name} limit=1Tree: ")
            assert f"\nCollation: {shown}" in message, (q, u)


def test_a_natural_order_limits_what_a_find_and_modify_finds(filled):
    asked = SON([("findAndModify", filled.name), ("query", {"z": 1}), ("sort", {"$natural": -1}), ("remove", True)])
    assert flat(explain(filled, asked)["queryPlanner"]["winningPlan"]) == "DELETE < LIMIT < COLLSCAN"


@pytest.mark.parametrize("new", [True, False])
def test_an_explained_upsert_returns_the_new_document(filled, new):
    asked = SON([("findAndModify", filled.name), ("query", {"_id": "none"}), ("update", {}), ("upsert", True), ("new", new)])
    stats = explain(filled, asked)["executionStats"]
    stage = stats["executionStages"]
    assert (stats["nReturned"], stage["advanced"], stage["works"], stage["needTime"]) == (int(new), int(new), 1 + new, 0)
    assert stage["nWouldUpsert"] == 1


def test_an_id_is_looked_up_in_the_order_of_the_query(client, c):
    database = client[c.database.name]
    folded = database.create_collection(c.name + "_folded", collation={"locale": "en", "strength": 2})
    folded.insert_one({"_id": "x"})
    assert folded.count_documents({"_id": "X"}) == 1
    assert list(folded.find({"_id": "X"}, collation={"locale": "simple"})) == []


def test_notablescan_refuses_what_no_index_serves(client, filled):
    client.admin.command("setParameter", 1, notablescan=True)
    try:
        assert filled.count_documents({"a": 1}) == 20 and len(list(filled.find())) == 200
        for attempt in (lambda: list(filled.find({"x": 1})), lambda: filled.distinct("x", {"x": 1}),
                        lambda: filled.update_one({"x": 1}, {"$set": {"y": 1}}),
                        lambda: list(filled.find({"a": 1}).hint([("$natural", 1)]))):
            with pytest.raises(OperationFailure) as error:
                attempt()
            assert error.value.code == 291
    finally:
        client.admin.command("setParameter", 1, notablescan=False)


def test_the_key_of_the_index_is_shown_behind_a_sort(filled):
    def find(**more):
        command = {"find": filled.name, "returnKey": True, **more}
        return filled.database.command(command)["cursor"]["firstBatch"]

    first = find(filter={"a": 3}, sort={"c": -1, "tags": 1}, hint="a_1_b_1", limit=2)
    assert first == [{"a": 3, "b": 4}, {"a": 3, "b": 1}]
    assert find(filter={}, sort={"z": 1}, limit=2) == [{}, {}]


def test_what_runs_tells_its_plan(filled, client):
    slow = {"$where": "function() { let n = 0; for (let i = 0; i < 300000; i++) n += i; return n > 0 }"}
    command = {"find": filled.name, "filter": {"a": {"$gte": 0}, **slow}, "hint": "a_1_b_1", "comment": "long"}
    done = threading.Thread(target=lambda: filled.database.command(command))
    done.start()
    found = []
    while done.is_alive() and not found:
        operations = client.admin.command("currentOp", **{"command.comment": "long"})["inprog"]
        found = [operation for operation in operations if "planSummary" in operation]
    done.join()
    assert found and found[0]["planSummary"] == "IXSCAN { a: 1, b: 1 }" and found[0]["op"] == "query"


def staged(c, pipeline, **options):
    """Returns the plan at the front of an explained pipeline, and the names of the stages after it."""
    found = explain(c, {"aggregate": c.name, "pipeline": pipeline, "cursor": {}, **options}, "queryPlanner")
    if "stages" not in found:
        return flat(found["queryPlanner"]["winningPlan"]), []
    first, *rest = found["stages"]
    return flat(first["$cursor"]["queryPlanner"]["winningPlan"]), [next(iter(stage)) for stage in rest]


GROUP = {"$group": {"_id": "$a"}}
JUMPS = ["$groupByDistinctScan"]
PIPELINES = [
    ([GROUP], "PROJECTION_COVERED < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$sort": {"a": -1}}, GROUP], "PROJECTION_COVERED < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$group": {"_id": "$a", "x": {"$first": "$b"}}}], "PROJECTION_COVERED < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$group": {"_id": "$a", "x": {"$first": "$c"}}}],
     "PROJECTION_SIMPLE < FETCH < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$sort": {"a": 1, "b": 1}}, {"$group": {"_id": "$a", "x": {"$first": "$c"}}}],
     "FETCH < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$group": {"_id": "$a", "x": {"$first": "$$ROOT"}}}], "FETCH < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$match": {"a": {"$gt": 5}}}, {"$group": {"_id": {"k": "$a"}}}],
     "PROJECTION_COVERED < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$match": {"a": 5}}, {"$group": {"_id": "$b"}}], "PROJECTION_COVERED < DISTINCT_SCAN a_1_b_1", JUMPS),
    ([{"$group": {"_id": "$a", "n": {"$sum": 1}}}], "PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$group": {"_id": "$a", "x": {"$last": "$b"}}}], "PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$limit": 50}, GROUP], "LIMIT < PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$match": {"z": 1}}, GROUP], "PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$group": {"_id": "$tags"}}], "PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$match": {"a": 5}}, {"$group": {"_id": "$b", "n": {"$sum": 1}}}],
     "PROJECTION_COVERED < IXSCAN a_1_b_1", ["$group"]),
    ([{"$match": {"a": 5}}, {"$group": {"_id": "$b", "n": {"$sum": "$c"}}}],
     "PROJECTION_SIMPLE < FETCH < IXSCAN a_1_b_1", ["$group"]),
    ([{"$match": {"a": 5}}, {"$count": "n"}], "COUNT_SCAN a_1_b_1", ["$group", "$project"]),
    ([{"$match": {"a": {"$gt": 5}}}, {"$limit": 3}, {"$count": "n"}],
     "LIMIT < IXSCAN a_1_b_1", ["$group", "$project"]),
    ([{"$match": {"a": 5}}, {"$sort": {"b": 1}}, {"$addFields": {"x": "$b"}}], "FETCH < IXSCAN a_1_b_1", ["$addFields"]),
    ([{"$setWindowFields": {"partitionBy": "$a", "sortBy": {"b": 1}, "output": {"n": {"$rank": {}}}}}],
     "FETCH < IXSCAN a_1_b_1", ["$_internalSetWindowFields"]),
    ([{"$match": {"a": 5}}, {"$project": {"b": 1, "_id": 0}}], "PROJECTION_COVERED < IXSCAN a_1_b_1", []),
    ([{"$match": {"a": 5}}, {"$project": {"x": "$b", "_id": 0}}], "PROJECTION_DEFAULT < IXSCAN a_1_b_1", []),
    ([{"$sort": {"c": 1}}, {"$project": {"x": "$b"}}], "PROJECTION_SIMPLE < FETCH < IXSCAN c_-1", ["$project"]),
    ([{"$project": {"c": 1}}, {"$group": {"_id": "$c", "n": {"$sum": 1}}}], "PROJECTION_SIMPLE < COLLSCAN", ["$group"]),
    ([{"$project": {"c": 0}}], "COLLSCAN", ["$project"]),
    ([{"$setWindowFields": {"sortBy": {"b": 1}, "output": {"n": {"$push": "$c"}}}}, {"$project": {"n": 1, "_id": 0}}],
     "PROJECTION_SIMPLE < FETCH < IXSCAN b_1", ["$_internalSetWindowFields", "$project"]),
]


@pytest.mark.parametrize("given, shown", [
    ({"a": 1}, {"_id": True, "a": True}),
    ({"_id": 0, "a": 5}, {"a": True, "_id": False}),
    ({"x": "$a", "b.c": 1, "a": 1}, {"_id": True, "a": True, "x": "$a", "b": {"c": True}}),
    ({"a": 1, "_id": "$x"}, {"a": True, "_id": "$x"}),
    ({"_id.x": 1, "a": 1}, {"a": True, "_id": {"x": True}}),
    ({"b.c": 0, "a": 0}, {"a": False, "b": {"c": False}, "_id": True}),
    ({"a": 0, "_id": 0}, {"_id": False, "a": False}),
    ({"x": {"$add": [1, 2]}}, {"_id": True, "x": {"$const": 3}}),
    ({"x": {"$map": {"input": "$a", "as": "b", "in": "$$b"}}},
     {"_id": True, "x": {"$map": {"input": "$a", "as": "b", "in": "$$b"}}}),
    ({"x": {"$sortArray": {"input": "$a", "sortBy": 1}}},
     {"_id": True, "x": {"$sortArray": {"input": "$a", "sortBy": 1}}}),
    ({"x": {"$sortArray": {"input": "$a", "sortBy": {"b": -1}}}},
     {"_id": True, "x": {"$sortArray": {"input": "$a", "sortBy": {"b": -1}}}}),
])
def test_a_projection_is_shown_as_it_is_understood(c, given, shown):
    c.insert_one({})
    found = explain(c, {"aggregate": c.name, "pipeline": [{"$limit": 1}, {"$addFields": {"q": 1}}, {"$project": given}],
                        "cursor": {}}, "queryPlanner")
    assert repr(found["stages"][-1]["$project"]) == repr(shown)


@pytest.mark.parametrize("pipeline, stages, behind", PIPELINES)
def test_what_a_pipeline_reads_is_told_to_the_planner(filled, pipeline, stages, behind):
    assert staged(filled, pipeline) == (stages, behind)


def test_groups_by_jumps_are_those_of_a_group(filled):
    filled.insert_many([{"_id": 1000 + i, **doc} for i, doc in enumerate(
        [{}, {"a": None}, {"a": 1.0, "b": -1}, {"a": "x"}, {"a": {"q": 1}}, {"a": float("-inf")}])])
    by_jumps = list(filled.aggregate([{"$sort": {"a": 1, "b": 1}}, {"$group": {
        "_id": "$a", "least": {"$first": "$b"}, "nothing": {"$first": "$z"}}}]))
    by_scan = filled.aggregate([{"$group": {"_id": "$a", "least": {"$min": {"$ifNull": ["$b", -9]}}}}])
    wanted = {repr(group["_id"]).replace(".0", ""): group["least"] for group in by_scan}
    found = {repr(group["_id"]).replace(".0", ""): group["least"] for group in by_jumps}
    assert {key: -9 if value is None else value for key, value in found.items()} == wanted
    assert all(group["nothing"] is None for group in by_jumps)
    assert [group["_id"] for group in by_jumps][:4] == [None, float("-inf"), 0, 1]
    assert [group["_id"] for group in filled.aggregate([{"$sort": {"a": -1}}, GROUP], batchSize=2)][:4] == [{"q": 1}, "x", 9, 8]
    few = filled.aggregate([{"$group": {"_id": "$c", "x": {"$first": "$$ROOT"}}}], batchSize=7)
    assert [group["x"].get("c") for group in few] == [*range(199, -1, -1), None]


def test_a_collection_that_is_not_there_is_grouped_by_jumps(c):
    assert staged(c, [GROUP]) == ("EOF", JUMPS)
    assert list(c.aggregate([GROUP])) == []


WRITES = [
    # The documents that a trial has found are taken first: the stage on top needs one unit of work
    # for each of them, and one to end.
    ({"delete": "c", "deletes": [{"q": {"a": 3, "b": 2}, "limit": 0}]}, "DELETE < FETCH < IXSCAN a_1_b_1", 3, 4),
    ({"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]}, "DELETE < IDHACK", 1, 2),
    ({"delete": "c", "deletes": [{"q": {"_id": {"$eq": 5}}, "limit": 1}]}, "DELETE < FETCH < IXSCAN _id_", 1, 2),
    ({"findAndModify": "c", "query": {"_id": 5}, "remove": True, "sort": {"a": 1}}, "DELETE < IDHACK", 1, 2),
    ({"findAndModify": "c", "query": {"a": 3}, "remove": True, "fields": {"a": 1}}, "PROJECTION_DEFAULT < DELETE < FETCH < IXSCAN a_1_b_1", 1, 2),
    ({"delete": "nothing", "deletes": [{"q": {"a": 3}, "limit": 0}]}, "EOF", 0, 1),
]


@pytest.mark.parametrize("command, stages, found, works", WRITES)
def test_a_write_takes_these_stages(filled, command, stages, found, works):
    name, *rest = command
    command = {name: filled.name if command[name] == "c" else command[name], **{key: command[key] for key in rest}}
    answer = explain(filled, command)
    assert flat(answer["queryPlanner"]["winningPlan"]) == stages
    top = answer["executionStats"]["executionStages"]
    assert top["works"] == works
    while top["stage"] not in ("DELETE", "EOF"):
        top = top["inputStage"]
    assert top.get("nWouldDelete", 0) == found


def test_an_explained_write_names_what_goes_wrong(filled):
    update = {"q": {"a": 1}, "u": {"$inc": {"tags": 1}}}
    stats = explain(filled, {"update": filled.name, "updates": [update]})["executionStats"]
    assert stats["executionSuccess"] is False and stats["errorCode"] == 14
    assert stats["executionStages"]["failed"] and stats["executionStages"]["nMatched"] == 0
    upsert = {"q": {"$and": [{"a": 77}, {"a": 78}]}, "u": {"$set": {"z": 1}}, "upsert": True}
    stats = explain(filled, {"update": filled.name, "updates": [upsert]})["executionStats"]
    assert stats["executionSuccess"] is False and stats["errorCode"] == 54


def test_explain_shows_collation_and_record_ids(filled):
    fr = {"locale": "fr"}
    filled.create_index("s", name="s_fr", collation=fr)
    found = explain(filled, {"find": filled.name, "filter": {"s": "x"}, "collation": fr})["queryPlanner"]
    assert found["collation"]["locale"] == "fr"
    assert found["winningPlan"]["inputStage"]["indexBounds"]["s"][0].startswith("[CollationKey(0x")
    found = explain(filled, {"find": filled.name, "filter": {"a": 1}, "projection": {"a": 1}, "showRecordId": True})
    plan = found["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "PROJECTION_DEFAULT"
    assert plan["transformBy"] == {"a": 1, "$recordId": {"$meta": "recordId"}}


def distinct_plan(c, key, query=None, **options):
    found = explain(c, {"distinct": c.name, "key": key, "query": query or {}, **options}, "queryPlanner")
    return flat(found["queryPlanner"]["winningPlan"]), sorted(c.distinct(key, query, **options), key=str)


def test_distinct_jumps_over_what_arrays_hold(c):
    c.insert_many([{"_id": 1, "a": [{"b": 1}, {"b": 2}]}, {"_id": 2, "a": {"b": 3}}])
    c.create_index([("a.b", 1), ("c", 1)])
    assert distinct_plan(c, "a.b") == ("PROJECTION_DEFAULT < DISTINCT_SCAN a.b_1_c_1", [1, 2, 3])
    c.create_index("a.b")
    assert distinct_plan(c, "a.b")[0] == "PROJECTION_DEFAULT < DISTINCT_SCAN a.b_1"
    # A condition may leave out elements of the arrays that it finds.
    assert distinct_plan(c, "a.b", {"a.b": 1}) == ("FETCH < IXSCAN a.b_1", [1, 2])


def test_distinct_reads_what_keys_do_not_tell(db, c):
    english = {"locale": "en", "strength": 2}
    c = db.create_collection("english", collation=english)
    c.insert_many([{"_id": 1, "a": "x", "b": 1}, {"_id": 2, "a": "X", "b": 1}, {"_id": 3, "a": 5}])
    c.create_index([("b", 1), ("a", 1)])
    c.create_index("a")
    assert distinct_plan(c, "a") == ("PROJECTION_SIMPLE < FETCH < DISTINCT_SCAN a_1", [5, "x"])
    assert distinct_plan(c, "a", {"a": "X"}) == ("FETCH < DISTINCT_SCAN a_1", ["x"])
    assert distinct_plan(c, "a", {"b": 1}) == ("FETCH < DISTINCT_SCAN b_1_a_1", ["x"])
    assert distinct_plan(c, "a", {"a": {"$gt": 1}}) == ("PROJECTION_COVERED < DISTINCT_SCAN a_1", [5])
    numbered = db.numbered
    numbered.insert_many([{"a": [1, 2]}, {"a": {"0": 3}}])
    numbered.create_index("a.0")
    assert distinct_plan(numbered, "a.0") == ("PROJECTION_SIMPLE < FETCH < DISTINCT_SCAN a.0_1", [1, 3])
    # The least of those that are the same.
    c.insert_one({"_id": 4, "z": [{"y": "x"}, {"y": "X"}]})
    assert c.distinct("z.y") == ["X"]


def test_distinct_uses_a_sparse_index_and_no_hidden_one(c):
    c.insert_many([{"_id": 1, "a": 1}, {"_id": 2}])
    c.create_index("a", sparse=True)
    assert distinct_plan(c, "a") == ("PROJECTION_COVERED < DISTINCT_SCAN a_1", [1])
    c.database.command("collMod", c.name, index={"name": "a_1", "hidden": True})
    assert distinct_plan(c, "a") == ("COLLSCAN", [1])


@pytest.mark.parametrize("condition, is_served", [
    ({"$type": "string"}, True), ({"$type": "null"}, True), ({"$regex": "x"}, True), ({"$mod": [2, 0]}, True),
    ({"$size": 1}, True), ({"$elemMatch": {"b": 1}}, True), ({"$nin": [None, 1]}, True), ({"$in": [1, 2]}, True),
    ({"$nin": [1]}, False), ({"$gte": None}, False), ({"$not": {"$gt": 1}}, False), ({"$bitsAllSet": 1}, False),
])
def test_which_conditions_say_that_a_field_is_there(c, condition, is_served):
    c.create_index("c", partialFilterExpression={"a": {"$exists": True}})
    found = explain(c, {"find": c.name, "filter": {"c": 1, "a": condition}}, "queryPlanner")
    assert flat(found["queryPlanner"]["winningPlan"]) == ("FETCH < IXSCAN c_1" if is_served else "COLLSCAN")


def test_a_collation_decides_which_indexes_serve(db):
    english = {"locale": "en", "strength": 2}
    c = db.create_collection("english", collation=english)
    c.insert_one({"_id": "x"})
    for query, collation, stages in [
        ({"_id": "X"}, None, "IDHACK"), ({"_id": 1}, english, "IDHACK"),
        ({"_id": 1}, {"locale": "simple"}, "FETCH < IXSCAN _id_"),
        ({"_id": {"k": 1}}, {"locale": "simple"}, "COLLSCAN"), ({"_id": [1]}, {"locale": "simple"}, "COLLSCAN"),
    ]:
        options = {"collation": collation} if collation else {}
        found = explain(c, {"find": c.name, "filter": query, **options}, "queryPlanner")
        assert flat(found["queryPlanner"]["winningPlan"]) == stages, query
    assert [d["_id"] for d in c.find({"_id": "X"})] == ["x"]
    c.create_index("$**")
    found = explain(c, {"find": c.name, "filter": {"a": 1}}, "queryPlanner")
    assert found["queryPlanner"]["winningPlan"]["inputStage"]["indexBounds"]["$_path"] == [
        "[CollationKey(0x61), CollationKey(0x61)]"]


def test_a_count_ends_at_its_limit(c):
    c.insert_many([{"_id": i, "a": i} for i in range(40)])
    for limit, skip, count in ((2, 0, 2), (3, 2, 3), (0, 5, 33), (11, 5, 11), (-2, 0, 2)):
        command = {"count": c.name, "query": {"a": {"$gt": 1}}, "limit": limit, "skip": skip}
        assert c.database.command(command)["n"] == count
    stage = explain(c, {"count": c.name, "skip": 50})["executionStats"]["executionStages"]
    assert (stage["nCounted"], stage["nSkipped"]) == (0, 50)


@pytest.mark.parametrize("skip, limit, works", [
    (5, 3, [("SKIP", 3, 28), ("SORT", 8, 28), ("FETCH", 18, 19), ("IXSCAN", 18, 19)]),
    (1, 30, [("SKIP", 17, 38), ("SORT", 18, 38), ("FETCH", 18, 19), ("IXSCAN", 18, 19)]),
    (50, 10, [("SKIP", 0, 38), ("SORT", 18, 38), ("FETCH", 18, 19), ("IXSCAN", 18, 19)]),
])
def test_each_row_that_is_passed_over_counts_as_a_unit_of_work(filled, skip, limit, works):
    asked = {"filter": {"c": {"$gte": 20, "$lt": 38}}, "sort": {"b": 1, "c": 1}, "hint": "c_-1"}
    stage = explain(filled, {"find": filled.name, **asked, "skip": skip, "limit": limit})["executionStats"]["executionStages"]
    found = []
    while stage:
        found.append((stage["stage"], stage["nReturned"], stage["works"]))
        stage = stage.get("inputStage")
    assert found == works


def test_explain_shows_the_name_of_a_hinted_index_as_it_is_read(filled):
    command = {"findAndModify": filled.name, "query": {"a": 1}, "hint": "b_1", "remove": True}
    found = explain(filled, command, "queryPlanner")
    assert found["command"]["hint"] == {"$hint": "b_1"}
    assert flat(found["queryPlanner"]["winningPlan"]) == "DELETE < FETCH < IXSCAN b_1"


def test_a_find_and_modify_is_explained_as_it_would_run(filled):
    found = explain(filled, {"findAndModify": filled.name, "remove": 1, "new": 0}, "queryPlanner")
    assert found["command"] == {"findAndModify": filled.name, "query": {}, "remove": True, "new": False}
    for command in ({}, {"remove": True, "update": {}}, {"remove": True, "upsert": True}):
        with pytest.raises(OperationFailure) as error:
            explain(filled, {"findAndModify": filled.name, **command}, "queryPlanner")
        assert error.value.code == 9


@pytest.mark.parametrize("hint, stages", [
    ({"$hint": "b_1"}, "FETCH < IXSCAN b_1"), ({"$hint": "b_1", "x": 1}, "FETCH < IXSCAN b_1"), ("b_1", "FETCH < IXSCAN b_1"),
    ({"$natural": "x"}, "COLLSCAN"), ({"$natural": -1}, "COLLSCAN"),
])
def test_how_a_hint_is_said(filled, hint, stages):
    found = explain(filled, {"find": filled.name, "filter": {"a": 1}, "hint": hint}, "queryPlanner")
    assert flat(found["queryPlanner"]["winningPlan"]) == stages
    with pytest.raises(OperationFailure, match="Cannot include '.natural' in compound hint: "):
        filled.database.command({"find": filled.name, "hint": {"a": 1, "$natural": 1}})


def test_a_count_on_a_view_heeds_the_hint(filled):
    view = filled.database.create_collection("view", viewOn=filled.name, pipeline=[{"$match": {"a": 1}}])
    assert view.database.command("count", "view", query={"b": 3}, hint="b_1")["n"] == 3
    with pytest.raises(OperationFailure, match="hint provided does not correspond to an existing index"):
        view.database.command("count", "view", hint="gone")


def test_what_is_asked_of_a_view_is_explained_as_a_pipeline_below(filled):
    db, name = filled.database, filled.name
    db.create_collection("view", viewOn=name, pipeline=[{"$match": {"a": 1}}])
    db.create_collection("upper", viewOn="view", pipeline=[{"$project": {"b": 1}}])
    below = {"aggregate": name, "cursor": {}, "collation": {"locale": "simple"}}
    match = {"$match": {"a": 1}}

    found = explain(filled, {"count": "view", "query": {"b": 3}, "skip": 1, "limit": -3, "hint": "b_1"}, "queryPlanner")
    counting = [match, {"$match": {"b": 3}}, {"$skip": 1}, {"$limit": 3}, {"$count": "count"}]
    assert found["command"] == {**below, "pipeline": counting, "hint": {"$hint": "b_1"}}
    cursor, *rest = found["stages"]
    assert flat(cursor["$cursor"]["queryPlanner"]["winningPlan"]) == "LIMIT < SKIP < FETCH < IXSCAN b_1"
    assert rest == [{"$group": {"_id": {"$const": None}, "count": {"$sum": {"$const": 1}}}},
                    {"$project": {"count": True, "_id": False}}]

    found = explain(filled, {"find": "upper", "filter": {"b": 3}, "limit": 2, "let": {"q": 1}, "comment": "x"}, "queryPlanner")
    pipeline = [match, {"$project": {"b": 1}}, {"$match": {"b": 3}}, {"$limit": 2}]
    assert list(found["command"].items()) == [
        ("aggregate", name), ("pipeline", pipeline), ("cursor", {}), ("collation", {"locale": "simple"}), ("let", {"q": 1})]
    found = explain(filled, {"aggregate": "view", "pipeline": [], "cursor": {"batchSize": 2}}, "queryPlanner")
    assert found["command"] == {**below, "pipeline": [match]}


def test_explain_tells_how_much_each_stage_of_a_pipeline_has_given(filled):
    def given(*pipeline, verbosity="executionStats"):
        command = {"aggregate": filled.name, "pipeline": list(pipeline), "cursor": {}}
        return [stage.get("nReturned") for stage in explain(filled, command, verbosity)["stages"]]

    all_documents = filled.count_documents({})
    groups = filled.distinct("a")
    group = {"$group": {"_id": "$a", "n": {"$sum": 1}}}
    assert given(group, {"$match": {"n": -1}}) == [all_documents, len(groups), 0]
    assert given(group, verbosity="queryPlanner") == [None, None]
    assert given({"$unwind": "$a"}, {"$skip": 2}, {"$limit": 3}) == [5, 5, 3, 3]
    # The stage's writes are not executed.
    assert given(group, {"$out": "gone"}) == [all_documents, len(groups), 0]
    assert "gone" not in filled.database.list_collection_names()
    with pytest.raises(OperationFailure, match="can't \\$divide by zero"):
        given(group, {"$project": {"x": {"$divide": [1, {"$subtract": ["$n", "$n"]}]}}})


def test_a_distinct_on_a_view_is_explained_as_the_pipeline_that_mongod_makes_of_it(filled):
    db, name = filled.database, filled.name
    db.create_collection("view", viewOn=name, pipeline=[{"$match": {"a": {"$gte": 8}}}])
    found = explain(filled, {"distinct": "view", "key": "a", "query": {"b": 3}, "maxTimeMS": 9000})
    unwind = {"$unwind": {"path": "$_internalUnwoundArray", "preserveNullAndEmptyArrays": True}}

    def values_at(path):
        return {"$replaceRoot": {"newRoot": {"_internalUnwoundArray": {"$_internalFindAllValuesAtPath": path}}}}

    def group(key):
        return {"$group": {"_id": key, "distinct": {"$addToSet": "$_internalUnwoundArray"}}}

    assert found["command"] == {
        "aggregate": name,
        "pipeline": [{"$match": {"a": {"$gte": 8}}}, {"$match": {"b": 3}}, values_at("a"), unwind, group(None)],
        "cursor": {}, "maxTimeMS": 9000, "collation": {"locale": "simple"},
    }
    cursor, *rest = found["stages"]
    assert flat(cursor["$cursor"]["queryPlanner"]["winningPlan"]) == "PROJECTION_COVERED < IXSCAN a_1_b_1"
    count = filled.count_documents({"a": {"$gte": 8}, "b": 3})
    assert [stage["nReturned"] for stage in found["stages"]] == [count, count, count, 1]
    for stage, wanted in zip(rest, [values_at([{"$const": "a"}]), unwind, group({"$const": None})]):
        assert wanted.items() <= stage.items()
    with pytest.raises(OperationFailure, match="FieldPath field names may not start with"):
        explain(filled, {"distinct": "view", "key": "$a"})


@pytest.mark.parametrize("path, wanted", [
    ("a", [[None, 1, 2, [3]], [{"b": 2}], [7, {"b": 3}, {"b": [4, 1, 4]}, [{"b": 9}]], [], []]),
    ("a.b", [[], [2], [1, 3, 4], [], []]),
    ("a.0", [[2], [], [{"b": 3}], [], []]),
    ("a.1.b.0", [[], [], [4], [], []]),
])
def test_the_values_at_a_path_are_those_of_a_distinct(c, path, wanted):
    """Recorded from mongod 6.0.27: what it makes of each document in a distinct on a view."""
    of_a = [[2, 1, 1, 1.0, [3], [3], None], {"b": 2}, [{"b": 3}, {"b": [4, 1, 4]}, [{"b": 9}], 7], []]
    c.insert_many([{"_id": number, "a": a} for number, a in enumerate(of_a)] + [{"_id": 9}])
    stages = [{"$sort": {"_id": 1}}, {"$project": {"x": {"$_internalFindAllValuesAtPath": path}}}]
    found = [doc["x"] for doc in c.aggregate(stages)]
    assert found == wanted
    c.database.create_collection("view", viewOn=c.name, pipeline=[])
    all_values = [value for values in found for value in values]
    of_view = c.database.view.distinct(path)
    assert all(value in of_view for value in all_values) and all(value in all_values for value in of_view)


@pytest.mark.parametrize("argument, code", [
    (1, 9567004), ("$a", 5511201), (["a", "b"], 16020), ("", 40352), ("a..b", 15998), ({"$concat": ["a", "b"]}, 5511201),
])
def test_a_path_of_which_the_values_are_wanted_is_a_constant(c, argument, code):
    with pytest.raises(OperationFailure) as error:
        list(c.aggregate([{"$replaceRoot": {"newRoot": {"x": {"$_internalFindAllValuesAtPath": argument}}}}]))
    assert error.value.code == code


def test_branches_that_walk_one_index_come_by_the_kind_of_their_bounds(filled):
    for first, second in [
        ({"b": 1}, {"b": {"$gt": 6}}), ({"b": {"$lt": 0}}, {"b": {"$gt": 6}}), ({"b": {"$gt": 6}}, {"b": {"$in": [1, 2]}}),
        ({"b": {"$ne": 5}}, {"b": {"$not": {"$gt": 6}}}), ({"b": {"$gt": 6}}, {"$expr": {"$gte": ["$b", 3]}}),
    ]:
        branches = [{**second, "x": 1}, {**first, "z": 1}]
        plan = explain(filled, {"find": filled.name, "filter": {"$or": branches}}, "queryPlanner")["queryPlanner"]["winningPlan"]
        while "inputStages" not in plan:
            plan = plan["inputStage"]
        assert [name for name in "xz" if f"'{name}'" in str(plan["inputStages"][0]["filter"])] == ["z"], first


def test_a_plan_that_need_not_sort_is_kept_in_reserve(c):
    c.insert_many([{"a": i, "b": i, "c": i} for i in range(20)])
    for name in "abc":
        c.create_index(name)
    for a, beside in [(99, ["FETCH", "SORT"]), (4, ["SORT", "FETCH"])]:
        shown = explain(c, {"find": c.name, "filter": {"a": a, "b": {"$lt": 5}}, "sort": {"c": 1}})["queryPlanner"]
        assert shown["winningPlan"]["stage"] == "SORT"
        assert [plan["stage"] for plan in shown["rejectedPlans"]] == beside


def test_a_wildcard_index_does_not_serve_what_matches_every_document(c):
    c.create_index([("$**", 1)])
    c.insert_many([{"_id": 1}, {"_id": 2, "a": 1}])
    for query in ({"$nin": []}, {"$not": {"$in": []}}, {"$nin": [5]}):
        assert [found["_id"] for found in c.find({"a": query})] == [1, 2]
    for query in ({"$ne": None}, {"$nin": [None]}):
        assert [found["_id"] for found in c.find({"a": query})] == [2]


def test_a_wildcard_index_knows_that_nothing_is_above_null(c):
    c.insert_many([{"a": 1}, {"a": None}, {}])
    c.create_index([("$**", 1)])
    for asked in ({"$gt": None}, {"$lt": None}):
        shown = explain(c, {"find": c.name, "filter": {"a": asked}})
        assert flat(shown["queryPlanner"]["winningPlan"]) == "FETCH < IXSCAN $**_1"
        assert shown["executionStats"]["totalKeysExamined"] == 0


def test_a_count_is_between_the_keys_of_a_collation(c):
    c.create_index("a", collation={"locale": "en", "strength": 2})
    count = {"count": c.name, "query": {"a": {"$gte": "ab"}}, "collation": {"locale": "en", "strength": 2}}
    bounds = explain(c, count, "queryPlanner")["queryPlanner"]["winningPlan"]["inputStage"]["indexBounds"]
    assert bounds["startKey"]["a"] not in ("", "ab") and bounds["endKey"] == {"a": {}}


def test_an_index_of_another_collation_is_walked_backward_behind_points_alone(c):
    c.create_index([("a", 1), ("b", 1)])
    c.insert_one({"a": 1, "b": 2})
    for array, condition, sort, direction in [
        (None, {"a": 1}, {"b": -1}, "backward"), (None, {"a": {"$in": [1, 2]}}, {"b": -1}, "backward"),
        (None, {"a": 1}, {"a": -1, "b": -1}, "forward"), (None, {"a": {"$ne": 1}}, {"a": -1}, "forward"),
        ({"a": [1, 2]}, {"a": 1}, {"b": -1}, "backward"), ({"b": [1, 2]}, {"a": 1}, {"b": -1}, "forward"),
    ]:
        if array:
            c.insert_one(array)
        find = {"find": c.name, "filter": condition, "sort": sort, "collation": {"locale": "en"}}
        stages = explain(c, find, "queryPlanner")["queryPlanner"]["winningPlan"]
        assert flat(stages).startswith(("SORT", "FETCH < SORT")), find
        while "inputStage" in stages:
            stages = stages["inputStage"]
        assert stages["direction"] == direction, find


@pytest.mark.parametrize("key, docs, is_sorted", [
    (("a", "b"), [{"a": ["x"], "b": 1}, {"a": "x", "b": [3, 1]}, {"a": "x", "b": 2}], True),
    (("a.x", "b.y"), [{"a": [{"x": "x"}], "b": {"y": 1}}, {"a": {"x": "x"}, "b": [{"y": 0}, {"y": 2}]}], True),
    # The parts below one name may be of one array, so that an entry with the value need not have
    # the least.
    (("a.x", "a.y"), [{"a": [{"x": "x", "y": 5}, {"x": "z", "y": 1}]}, {"a": {"x": "x", "y": 3}}], False),
])
def test_an_array_that_a_value_bounds_leaves_the_order_of_another_field(c, key, docs, is_sorted):
    c.create_index([(name, 1) for name in key])
    c.insert_many(docs)
    find = {"find": c.name, "filter": {key[0]: "x"}, "sort": {key[1]: 1}}
    assert ("SORT" in flat(explain(c, find)["queryPlanner"]["winningPlan"])) is not is_sorted
    by_scan = list(c.find(find["filter"], sort=[(key[1], 1)], hint={"$natural": 1}))
    assert list(c.find(find["filter"], sort=[(key[1], 1)])) == by_scan


@pytest.mark.parametrize("wanted", [
    {"$elemMatch": {"$gt": 1}}, {"$elemMatch": {"$type": "number"}}, {"$all": [{"$elemMatch": {"$in": [5, 6]}}]},
])
def test_elements_of_an_array_that_a_number_chooses_are_not_looked_for_in_an_index(c, wanted):
    c.insert_many([{"_id": 1, "b": [[5]]}, {"_id": 2, "b": {"0": [5]}}, {"_id": 3, "b": [5]}, {"_id": 4, "b": [[[5]]]}])
    c.create_index("b.0")
    c.create_index([("$**", 1)])
    assert [doc["_id"] for doc in c.find({"b.0": wanted}).sort("_id", 1)] == [1, 2]
    plan = explain(c, {"find": c.name, "filter": {"b.0": wanted}}, "queryPlanner")["queryPlanner"]
    assert plan["winningPlan"]["stage"] == "COLLSCAN" and plan["rejectedPlans"] == []


def test_an_explained_sort_has_directions_that_are_ints(filled):
    given = {"z": 1.0, "y": Int64(-1)}
    find = explain(filled, {"find": filled.name, "sort": given})["queryPlanner"]["winningPlan"]
    stages = [{"$limit": 4}, {"$setWindowFields": {"sortBy": given, "output": {"n": {"$count": {}}}}},
              {"$sort": {**given, "x": {"$meta": "randVal"}}},
              {"$group": {"_id": 1, "n": {"$top": {"sortBy": given, "output": "$z"}}}}]
    aggregate = {"aggregate": filled.name, "pipeline": stages, "cursor": {}}
    _, first, window, sort, group = explain(filled, aggregate, "queryPlanner")["stages"]
    for shown in (find["sortPattern"], first["$sort"]["sortKey"], window["$_internalSetWindowFields"]["sortBy"],
                  group["$group"]["n"]["$top"]["sortBy"]):
        assert shown == {"z": 1, "y": -1}
        assert [type(direction) for direction in shown.values()] == [int, int]
    assert sort["$sort"]["sortKey"] == {"z": 1, "y": -1, "$computed2": {"$meta": "randVal"}}
