"""Events of random updates in change streams: the same as in mongod 6.0, and the difference between the two documents.

The recorded part is made by `tests/update_descriptions.py --record` with a mongod. MARULA_DESCRIPTIONS sets the number of
new random cases, MARULA_DESCRIPTIONS_SEED repeats a run.
"""
import os
import random

import pymongo
import pytest
import update_descriptions
from bson import json_util

COUNT = int(os.environ.get("MARULA_DESCRIPTIONS", "500"))
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "update_descriptions.json")
OPTIONS = json_util.CANONICAL_JSON_OPTIONS.with_options(tz_aware=False)


@pytest.fixture
def rs(replica):
    with pymongo.MongoClient("mongodb://127.0.0.1:%d/?replicaSet=rs0" % replica.port) as client:
        yield client


def test_what_mongod_tells_of_an_update(rs):
    with open(RECORDED, encoding="utf-8") as recorded:
        cases = json_util.loads(recorded.read(), json_options=OPTIONS)
    told = update_descriptions.told(rs, [(case["doc"], case["update"], case["filters"]) for case in cases])
    for case, (before, after, event) in zip(cases, told):
        found = update_descriptions.essence(event)
        assert update_descriptions.ordered(found) == update_descriptions.ordered(case["told"]), (case, found)


def test_what_is_told_makes_the_new_document_of_the_old(rs):
    seed = int(os.environ.get("MARULA_DESCRIPTIONS_SEED", random.randrange(1 << 32)))
    rng = random.Random(seed)
    cases = [update_descriptions.case(rng) for _ in range(COUNT)]
    print("MARULA_DESCRIPTIONS_SEED=%d" % seed)
    changed = 0
    for (doc, update, filters), result in zip(cases, update_descriptions.told(rs, cases)):
        changed += result[2] is not None
        try:
            update_descriptions.check(*result)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise AssertionError((seed, doc, update, filters, result)) from error
    assert changed > COUNT / 3
