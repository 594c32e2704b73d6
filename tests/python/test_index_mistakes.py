"""What is wrong with an index is told in mongod's words, and of several mistakes the one that it tells."""

import pytest
from bson.son import SON
from pymongo.errors import OperationFailure


def refuse(c, *specs, **options):
    command = {"createIndexes": c.name, "indexes": list(specs), **options}
    with pytest.raises(OperationFailure) as refused:
        c.database.command(command)
    return refused.value.code, refused.value.details["errmsg"]


def test_options_are_read_in_the_order_of_the_document(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, SON([("bits", "x"), ("key", {"a": 0}), ("name", "n")]))
    assert (code, "'bits' must be a number" in text) == (14, True)
    code, text = refuse(c, SON([("key", {"a": 0}), ("name", "n"), ("bits", "x")]))
    assert (code, "cannot be 0" in text) == (67, True)


def test_a_build_that_cannot_begin_names_the_first_index(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, {"key": {"a": "hashed"}, "name": "n", "unique": True})
    assert code == 16764
    assert "Caught exception during index builder ((None)) initialization on namespace" in text
    assert '1 index specs provided. First index spec: { v: 2, unique: true, key: { a: "hashed" }, name: "n" }' in text


def test_a_partial_filter_that_cannot_be_is_shown_as_a_tree(c):
    spec = {"key": {"a": 1}, "name": "n", "partialFilterExpression": {"a": {"$not": {"$gt": 1}}}}
    code, text = refuse(c, spec)
    assert code == 67
    assert text.endswith("Expression not supported in partial index: $not\n    $and\n        a $gt 1\n")


def test_an_id_index_has_its_collections_collation(c):
    c.insert_one({"a": 1})
    code, text = refuse(c, {"key": {"_id": 1}, "name": "n", "collation": {"locale": "fr"}})
    assert code == 2
    assert text.startswith("The _id index must have the same collation as the collection.")
    c.create_index([("_id", 2)])
