"""The checker of histories finds what is planted, and nothing in a history that is good."""
import random

import pytest
from histories import ABORTED, Transaction, anomalies


def a(key, value):
    return "append", key, value


def r(key, *values):
    return "read", key, list(values)


PLANTED = {
    # Both lists show both transactions, in two orders.
    "G0": [Transaction("1", [a("x", 1), a("y", 1)]), Transaction("2", [a("x", 2), a("y", 2)]),
           Transaction("3", [r("x", 1, 2), r("y", 2, 1)])],
    "G1a": [Transaction("1", [a("x", 1)], ABORTED), Transaction("2", [r("x", 1)])],
    "G1b": [Transaction("1", [a("x", 1), a("x", 2)]), Transaction("2", [r("x", 1)]), Transaction("3", [r("x", 1, 2)])],
    # Each has read what the other wrote.
    "G1c": [Transaction("1", [a("x", 1), r("y", 2)]), Transaction("2", [a("y", 2), r("x", 1)])],
    # The second is after the first in one list, and before it in the other.
    "G-single": [Transaction("1", [a("x", 1), a("y", 1)]), Transaction("2", [r("x", 1), r("y")]),
                 Transaction("3", [r("x", 1), r("y", 1)])],
    "lost update": [Transaction("1", [r("x"), a("x", 1)]), Transaction("2", [r("x"), a("x", 2)]),
                    Transaction("3", [r("x", 1, 2)])],
    "lost append": [Transaction("1", [a("x", 1)]), Transaction("2", [a("x", 2)]), Transaction("3", [r("x", 2)])],
    "incompatible order": [Transaction("1", [a("x", 1)]), Transaction("2", [a("x", 2)]), Transaction("3", [r("x", 1, 2)]),
                           Transaction("4", [r("x", 2)])],
    "internal": [Transaction("1", [a("x", 1), r("x")])],
    "made up": [Transaction("1", [r("x", 1)])],
    "duplicate": [Transaction("1", [a("x", 1)]), Transaction("2", [r("x", 1, 1)])],
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    assert name in anomalies(PLANTED[name])


def serial(seed):
    """A history that is good: one transaction after the other, sometimes with one that sees the state before it."""
    rng, state, history, value = random.Random(seed), {key: [] for key in "xyz"}, [], 0
    for number in range(200):
        operations, copy = [], {key: list(values) for key, values in state.items()}
        for _ in range(rng.randrange(1, 5)):
            key = rng.choice("xyz")
            if rng.random() < 0.5:
                value += 1
                copy[key].append(value)
                operations.append(a(key, value))
            else:
                operations.append(r(key, *copy[key]))
        is_aborted = rng.random() < 0.2
        history.append(Transaction(str(number), operations, ABORTED if is_aborted else "committed"))
        if not is_aborted:
            state = copy
    return history + [Transaction("end", [r(key, *values) for key, values in state.items()])]


def test_nothing_is_found_in_a_good_history():
    for seed in range(20):
        assert anomalies(serial(seed)) == {}
    # Two that write what the other reads are no anomaly of snapshots.
    skew = [Transaction("1", [r("x"), a("y", 1)]), Transaction("2", [r("y"), a("x", 2)]), Transaction("3", [r("x", 2), r("y", 1)])]
    assert anomalies(skew) == {}


def test_what_is_planted_in_a_long_history_is_found():
    """One read of a good history shows one append too few, or one of an aborted transaction."""
    for seed in range(20):
        history = serial(seed)
        appended = {(key, value): transaction for transaction in history for key, value in transaction.appends()}
        early, late = history[:150], history[150:]
        end = history[-1]
        key, values = next((key, values) for kind, key, values in end.operations if kind == "read" and len(values) > 20)
        # Whoever reads the list as of this append, before another reads less of it, makes a cycle.
        writer = appended[key, values[10]]
        stale = Transaction("stale", [r(key, *values[:5]), r("seen", 1)])
        chained = Transaction("chained", [r(key, *writers_end(writer, key, values)), a("seen", 1)])
        assert "G-single" in anomalies(early + late + [chained, stale]), seed


def writers_end(writer, key, values):
    """The list as it was when this transaction had ended."""
    own = [value for _, value in writer.appends(key)]
    return values[:max(values.index(value) for value in own) + 1]
