"""Histories of transactions that append to lists and read them, and what is wrong with them.

A list that is read shows the order of the writes to it, so that the order of transactions follows from the reads
alone. The test searches for the anomalies that snapshot isolation forbids, by the names of Adya's "Weak Consistency": G0, G1a,
G1b, G1c and G-single, and lost updates. Reads after a transaction's own appends have them at their end.
"""
from collections import defaultdict

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Transaction:
    """Its operations in order: ("append", key, value), each value once in a history, and ("read", key, list)."""

    def __init__(self, name, operations, state=COMMITTED):
        self.name, self.operations, self.state = name, operations, state

    def appends(self, key=None):
        return [(k, value) for kind, k, value in self.operations if kind == "append" and key in (None, k)]

    def outer_reads(self):
        """Its reads of others' writes: each list without its own appends, and whether it had appended to it before."""
        own = defaultdict(list)
        for kind, key, value in self.operations:
            if kind == "append":
                own[key].append(value)
            else:
                yield key, value[:len(value) - len(own[key])] if own[key] else value, own[key], value


def anomalies(history):
    """The names of the anomalies that are found, each with where."""
    found = defaultdict(list)
    committed = [transaction for transaction in history if transaction.state != ABORTED]
    writer, last_of = {}, {}
    for transaction in history:
        for key, value in transaction.appends():
            writer[key, value] = transaction
            last_of[transaction.name, key] = value
    orders = orders_of(committed, found)
    for transaction in committed:
        check_reads(transaction, writer, last_of, found)
    check_lost(committed, orders, found)
    edges = edges_of(committed, orders, writer)
    check_cycles(edges, found)
    return dict(found)


def orders_of(committed, found):
    """The order of each key's appends: the longest list that was read. All others are its front."""
    orders = {}
    reads = [(key, whole) for transaction in committed if transaction.state == COMMITTED
             for key, _, _, whole in transaction.outer_reads()]
    for key, whole in reads:
        if len(whole) > len(orders.get(key, [])):
            orders[key] = whole
    for key, whole in reads:
        if whole != orders.get(key, [])[:len(whole)]:
            found["incompatible order"].append((key, whole))
    for key, order in orders.items():
        if len(set(order)) != len(order):
            found["duplicate"].append((key, order))
    return orders


def check_reads(transaction, writer, last_of, found):
    for key, outer, own, whole in transaction.outer_reads():
        if own and whole[len(outer):] != own:
            found["internal"].append((transaction.name, key))
        for value in outer:
            by = writer.get((key, value))
            if by is None:
                found["made up"].append((transaction.name, key, value))
            elif by.state == ABORTED:
                found["G1a"].append((transaction.name, key, value))
        if outer:
            by = writer.get((key, outer[-1]))
            if by is not None and by is not transaction and last_of[by.name, key] != outer[-1]:
                found["G1b"].append((transaction.name, key, outer[-1]))


def check_lost(committed, orders, found):
    """Two that read the same version of a key and append to it, and appends that nobody finds any more."""
    seen = {}
    for transaction in committed:
        if transaction.state != COMMITTED:
            continue
        for key, outer, own, _ in transaction.outer_reads():
            if not own and transaction.appends(key):
                other = seen.setdefault((key, tuple(outer)), transaction)
                if other is not transaction:
                    found["lost update"].append((other.name, transaction.name, key))
        for key, value in transaction.appends():
            if key in orders and value not in orders[key]:
                found["lost append"].append((transaction.name, key, value))


def edges_of(committed, orders, writer):
    """The order of transactions, and its reasons: ww after its append, wr after it was read, rw if it was not seen."""
    edges = defaultdict(set)

    def add(before, after, kind):
        if before is not None and after is not None and before is not after and ABORTED not in (before.state, after.state):
            edges[before.name, after.name].add(kind)

    for key, order in orders.items():
        for before, after in zip(order, order[1:]):
            add(writer.get((key, before)), writer.get((key, after)), "ww")
    for transaction in committed:
        for key, outer, _, _ in transaction.outer_reads():
            if outer:
                add(writer.get((key, outer[-1])), transaction, "wr")
            following = [value for value in orders.get(key, [])[len(outer):] if writer.get((key, value)) is not transaction]
            if following:
                add(transaction, writer.get((key, following[0])), "rw")
    return edges


def check_cycles(edges, found):
    def graph(*kinds):
        after = defaultdict(set)
        for (before, behind), why in edges.items():
            if why & set(kinds):
                after[before].add(behind)
        return after

    for name, after in (("G0", graph("ww")), ("G1c", graph("ww", "wr"))):
        if any(reaches(after, node, node) for node in list(after)):
            found[name].append(sorted(after))
    after = graph("ww", "wr")
    for (before, behind), why in edges.items():
        if "rw" in why and reaches(after, behind, before):
            found["G-single"].append((before, behind))


def reaches(after, start, goal):
    seen, waiting = set(), list(after[start]) if start in after else []
    while waiting:
        node = waiting.pop()
        if node == goal:
            return True
        if node not in seen:
            seen.add(node)
            waiting.extend(after.get(node, ()))
    return False
