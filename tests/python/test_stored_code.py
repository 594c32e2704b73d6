"""The stored code in a database's system.js is available to $where and mapReduce, and to nothing else."""
import pytest
from bson import Code, Regex
from pymongo.errors import OperationFailure

SUM = Code("function(k, v) { return Array.sum(v) }")


@pytest.fixture
def stored(db):
    db.c.insert_many([{"_id": i, "a": i} for i in range(4)])
    db["system.js"].insert_many([{"_id": "big", "value": Code("function(x) { return x >= least }")},
                                 {"_id": "least", "value": 2},
                                 {"_id": "broken", "value": Code("function(x) {")},
                                 {"_id": "held", "value": {"f": Code("function() { return 3 }")}}])
    return db


def code_of(run):
    with pytest.raises(OperationFailure) as failed:
        run()
    return failed.value.code


def test_where_calls_stored_functions(stored):
    where = {"$where": "big(this.a)"}
    assert [d["_id"] for d in stored.c.find(where, sort=[("_id", 1)])] == [2, 3]
    assert stored.command("count", "c", query=where)["n"] == 2
    assert stored.c.distinct("a", where) == [2, 3]
    assert stored.c.update_many(where, {"$set": {"z": 1}}).modified_count == 2
    assert stored.c.find_one_and_update(where, {"$set": {"y": 1}}, sort=[("_id", 1)])["_id"] == 2
    assert stored.c.count_documents({}) == 4
    assert stored.command("count", "c", query={"$where": "held.f() === 3"})["n"] == 4
    # It is read again for each operation.
    stored["system.js"].update_one({"_id": "least"}, {"$set": {"value": 1}})
    assert stored.command("count", "c", query=where)["n"] == 3
    assert stored.c.delete_many(where).deleted_count == 3


def test_map_reduce_calls_stored_functions(stored):
    def run(map, **more):
        reply = stored.command("mapReduce", "c", map=Code(map), reduce=SUM, out={"inline": 1}, **more)
        return sorted((one["_id"], one["value"]) for one in reply["results"])
    assert run("function() { emit(big(this.a), 1) }") == [(False, 2), (True, 2)]
    assert run("function() { emit(1, 1) }", finalize=Code("function(k, v) { return big(v) }")) == [(1, True)]
    # Stored code takes precedence over that of the command.
    assert run("function() { emit(least, 1) }", scope={"least": 77}) == [(2, 4)]


def test_other_code_does_not_see_them(stored):
    call = {"$function": {"body": "function(a) { return big(a) }", "args": ["$a"], "lang": "js"}}
    assert code_of(lambda: list(stored.c.aggregate([{"$project": {"x": call}}]))) == 139
    assert code_of(lambda: list(stored.c.find({"$expr": call}))) == 139
    assert code_of(lambda: list(stored.client[stored.name + "2"].c.find({"$where": "big(1)"})) or stored.c.find_one(
        {"$where": "nosuch(1)"})) == 139


@pytest.mark.parametrize("document, code", [({"_id": "x"}, 10210), ({"_id": 5, "value": 1}, 10209),
                                            ({"_id": "x", "value": Code("function() {}", {"q": 1})}, 4546000)], ids=str)
def test_what_is_stored_has_a_form(stored, document, code):
    stored["system.js"].insert_one(document)
    assert code_of(lambda: list(stored.c.find({"$where": "true"}))) == code
    assert code_of(lambda: stored.command("mapReduce", "c", map=Code("function() { emit(1, 1) }"), reduce=SUM,
                                          out={"inline": 1})) == code


def test_a_result_that_is_a_regular_expression_keeps_its_closing_slash_and_one_within_a_document_does_not(db):
    """As in mongod 6.0; what is emitted is within a document."""
    db.c.insert_one({"_id": 1, "a": Regex("^a", "i")})

    def result(body):
        call = {"$function": {"body": body, "args": ["$a"], "lang": "js"}}
        return db.c.aggregate([{"$project": {"r": call}}]).next()["r"]

    assert result("function(x) { return x }") == Regex("^a/", "i")
    assert result("function(x) { return {r: [x]} }") == {"r": [Regex("^a", "i")]}
    reply = db.command("mapReduce", "c", map="function() { emit(this.a, {k: this.a}) }",
                       reduce="function(k, v) { return v[0] }", out={"inline": 1})
    assert reply["results"] == [{"_id": Regex("^a", "i"), "value": {"k": Regex("^a", "i")}}]
