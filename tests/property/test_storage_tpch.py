"""TPCH: sizes, references that are always whole, orders that change as a whole."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.storage.tpch import TABLES, TpchConfig, tick

SMALL = [0.00001, 0.0001, 0.0005]
REFERENCES = [
    ("nation", ("n_regionkey",), "region", ("r_regionkey",)),
    ("supplier", ("s_nationkey",), "nation", ("n_nationkey",)),
    ("customer", ("c_nationkey",), "nation", ("n_nationkey",)),
    ("partsupp", ("ps_partkey",), "part", ("p_partkey",)),
    ("partsupp", ("ps_suppkey",), "supplier", ("s_suppkey",)),
    ("orders", ("o_custkey",), "customer", ("c_custkey",)),
    ("lineitem", ("l_orderkey",), "orders", ("o_orderkey",)),
    ("lineitem", ("l_partkey", "l_suppkey"), "partsupp", ("ps_partkey", "ps_suppkey")),
]
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


class Contents:
    """All tables as multisets, tick after tick."""

    def __init__(self, config):
        self.config = config
        self.tables = {name: Counter() for name in TABLES}

    def apply(self, number):
        changes = tick(self.config, number)
        for name, rows in changes.items():
            held = self.tables[name]
            for row in rows.to_pylist():
                diff = row.pop("__diff")
                held[tuple(row.values())] += diff
            self.tables[name] = Counter({row: n for row, n in held.items() if n})
        return changes

    def values(self, name, columns):
        at = [TABLES[name].names.index(column) for column in columns]
        return [tuple(row[i] for i in at) for row in self.tables[name]]

    def check(self):
        for name, key in KEYS.items():
            assert set(self.tables[name].values()) == {1}
            keys = self.values(name, key)
            assert len(set(keys)) == len(keys)
        for name, columns, target, key in REFERENCES:
            assert set(self.values(name, columns)) <= set(self.values(target, key))
        assert set(self.values("orders", ("o_orderkey",))) == set(
            self.values("lineitem", ("l_orderkey",))
        )


@histories()
@given(st.sampled_from(SMALL), st.integers(0, 2**40), st.integers(0, 60))
def test_references_are_whole_and_keys_unique_after_every_tick(scale_factor, seed, first):
    contents = Contents(TpchConfig(scale_factor, seed))
    contents.apply(0)
    contents.check()
    for number in range(1, first + 1):
        contents.apply(number)
    contents.check()


@histories()
@given(st.integers(0, 100), st.integers(1, 1000))
def test_a_tick_replaces_one_order_with_its_lineitems(seed, number):
    changes = tick(TpchConfig(0.0001, seed), number)
    orders = changes["orders"].to_pylist()
    assert [row["__diff"] for row in orders] == [-1, 1]
    (key,) = {row["o_orderkey"] for row in orders}
    lines = changes["lineitem"].to_pylist()
    assert {row["l_orderkey"] for row in lines} == {key}
    assert {row["__diff"] for row in lines} == {-1, 1}


def test_all_orders_have_their_turn():
    config = TpchConfig(0.00002)
    keys = [tick(config, n)["orders"]["o_orderkey"][0].as_py() for n in range(1, config.orders + 1)]
    assert sorted(keys) == list(range(1, config.orders + 1))


def test_totals_are_those_of_the_lineitems():
    tables = tick(TpchConfig(0.0002, 3), 0)
    totals = Counter()
    for line in tables["lineitem"].to_pylist():
        cents = int(line["l_extendedprice"] * 100)
        factor = (100 - int(line["l_discount"] * 100)) * (100 + int(line["l_tax"] * 100))
        totals[line["l_orderkey"]] += cents * factor // 10_000
    for order in tables["orders"].to_pylist():
        assert int(order["o_totalprice"] * 100) == totals[order["o_orderkey"]]


def test_sizes_and_seeds():
    sizes = {name: rows.num_rows for name, rows in tick(TpchConfig(0.01), 0).items()}
    assert 50_000 < sizes.pop("lineitem") < 70_000
    assert sizes == {
        "region": 5,
        "nation": 25,
        "supplier": 100,
        "part": 2000,
        "partsupp": 8000,
        "customer": 1500,
        "orders": 15_000,
    }
    one, two = (tick(TpchConfig(0.0001, seed), 0)["customer"] for seed in (1, 2))
    assert one.equals(tick(TpchConfig(0.0001, 1), 0)["customer"])
    assert not one.equals(two)


@pytest.mark.parametrize("name", list(TABLES))
def test_tables_have_the_declared_schema(name):
    table = tick(TpchConfig(0.0001), 0)[name]
    table.validate(full=True)
    assert table.drop_columns(["__diff"]).schema == TABLES[name].arrow_schema()
