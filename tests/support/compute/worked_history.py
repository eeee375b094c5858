"""A small history of two tables that has what rules have to get right, and how it is committed."""

from __future__ import annotations

from decimal import Decimal

from slackwater.repr.relation import RelationDesc

A = RelationDesc.of(k="integer", v="long", p="decimal(12,2)", s="string")
B = RelationDesc.of(k="integer", w="long")
DUCK = {
    "a": "(k INTEGER, v BIGINT, p DECIMAL(12, 2), s VARCHAR)",
    "b": "(k INTEGER, w BIGINT)",
}


def a(k, v=1, p="1.50", s="x"):
    return (k, v, None if p is None else Decimal(p), s)


HISTORY = {
    "a": [
        # insert, duplicates, NULL keys
        (a(1), 1, 1),
        (a(1), 1, 2),
        (a(None, 5), 1, 1),
        (a(2, None, None), 2, 1),
        # update, and two times in one interval
        (a(2, None, None), 4, -1),
        (a(2, 7, "2.25"), 4, 1),
        (a(2, 7, "2.25"), 5, -1),
        # delete and insert again
        (a(None, 5), 5, -1),
        (a(None, 5), 6, 1),
        # a group goes and comes back
        (a(1), 7, -3),
        (a(1), 9, 1),
    ],
    "b": [
        ((1, 10), 2, 1),
        ((1, 11), 4, 1),
        ((2, 20), 4, 2),
        ((None, 9), 5, 1),
        ((1, 10), 8, -1),
        ((2, 20), 9, -1),
    ],
}
LAST = 10


def run(bench, boundaries):
    for upper in boundaries:
        lower = bench.client.reads.tables_upper()
        bench.commit(
            upper, {n: [u for u in h if lower <= u[1] < upper] for n, h in HISTORY.items()}
        )
        for name in bench.flows:
            bench.wait(name, upper - 1)
