"""The TPCH load generator: the eight tables of the benchmark, and orders that change.

Tick 0 is the whole data set at a scale factor. Each later tick takes one order, retracts it with
its lineitems and inserts another version of it with the same key; all orders have their turn before
one has its second. Keys always refer to rows that are there.

Each value is a function of the seed, its column, its row's key and, of orders, the version. So a
tick needs no memory: what it retracts it computes again.

Source: surface 4.1. Names, types, and the ranges of values follow the TPC-H specification; texts
are shorter.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.relation import RelationDesc, with_diff

MONEY = "decimal(15,2)"

TABLES: Mapping[str, RelationDesc] = {
    "region": RelationDesc.of(r_regionkey="long", r_name="string", r_comment="string"),
    "nation": RelationDesc.of(
        n_nationkey="long", n_name="string", n_regionkey="long", n_comment="string"
    ),
    "supplier": RelationDesc.of(
        s_suppkey="long", s_name="string", s_address="string", s_nationkey="long",
        s_phone="string", s_acctbal=MONEY, s_comment="string",
    ),
    "part": RelationDesc.of(
        p_partkey="long", p_name="string", p_mfgr="string", p_brand="string", p_type="string",
        p_size="integer", p_container="string", p_retailprice=MONEY, p_comment="string",
    ),
    "partsupp": RelationDesc.of(
        ps_partkey="long", ps_suppkey="long", ps_availqty="integer", ps_supplycost=MONEY,
        ps_comment="string",
    ),
    "customer": RelationDesc.of(
        c_custkey="long", c_name="string", c_address="string", c_nationkey="long",
        c_phone="string", c_acctbal=MONEY, c_mktsegment="string", c_comment="string",
    ),
    "orders": RelationDesc.of(
        o_orderkey="long", o_custkey="long", o_orderstatus="string", o_totalprice=MONEY,
        o_orderdate="date", o_orderpriority="string", o_clerk="string", o_shippriority="integer",
        o_comment="string",
    ),
    "lineitem": RelationDesc.of(
        l_orderkey="long", l_partkey="long", l_suppkey="long", l_linenumber="integer",
        l_quantity=MONEY, l_extendedprice=MONEY, l_discount=MONEY, l_tax=MONEY,
        l_returnflag="string", l_linestatus="string", l_shipdate="date", l_commitdate="date",
        l_receiptdate="date", l_shipinstruct="string", l_shipmode="string", l_comment="string",
    ),
}  # fmt: skip

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0),
    ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4),
    ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1),
    ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3),
    ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_SIZES = ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
_FINISHES = ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
_METALS = ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
_BOXES = ("SM", "LG", "MED", "JUMBO", "WRAP")
_KINDS = ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
_COLORS = ("almond", "azure", "blush", "chiffon", "cornsilk", "drab", "forest", "ghost", "indian",
           "ivory", "khaki", "lemon", "maroon", "navy", "olive", "peru", "rose", "sienna",
           "steel", "tan", "thistle", "violet", "wheat")  # fmt: skip
_WORDS = ("tides", "harbours", "signals", "anchors", "currents", "lanterns", "ledgers", "cargoes",
          "ropes", "charts", "drift", "settle", "wait", "sail", "turn", "rise", "quietly",
          "slowly", "boldly", "finally", "along", "beneath", "beyond", "against")  # fmt: skip

_FIRST_DAY = 8035
"""1992-01-01, in days since 1970."""
_LAST_ORDER_DAY = 10440 - 151
"""1998-08-02 less the longest time from an order to a receipt."""
_TODAY = 9298
"""1995-06-17: lineitems that were shipped until then are billed."""
_MOST_LINES = 7
_VERSION = 1 << 40
"""More than there are order keys: an order's version and key in one number."""

Ids: TypeAlias = "npt.NDArray[np.uint64]"
Ints: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class TpchConfig:
    """`scale_factor` 1 is about 1 GB of text."""

    scale_factor: float = 0.01
    seed: int = 0

    def count(self, at_one: int) -> int:
        """The rows of a table that has `at_one` rows at the scale factor 1."""
        return max(1, round(at_one * self.scale_factor))

    @property
    def suppliers(self) -> int:
        return self.count(10_000)

    @property
    def parts(self) -> int:
        return self.count(200_000)

    @property
    def customers(self) -> int:
        return self.count(150_000)

    @property
    def orders(self) -> int:
        return self.count(1_500_000)


def tick(config: TpchConfig, number: int) -> dict[str, pa.Table]:
    """The updates of tick `number`, by table: its columns and ``__diff``."""
    if number == 0:
        return _snapshot(config)
    key, version = _turn(config, number)
    before = _order_tables(config, np.array([key]), version)
    after = _order_tables(config, np.array([key]), version + 1)
    return {
        name: pa.concat_tables([with_diff(before[name], -1), with_diff(after[name], 1)])
        for name in before
    }


def _turn(config: TpchConfig, number: int) -> tuple[int, int]:
    """The key of the order that tick `number` changes, and the version that it has before."""
    count = config.orders
    version, place = divmod(number - 1, count)
    stride = next(
        s for s in range(int(count * 0.618) | 1, 2 * count + 3) if math.gcd(s, count) == 1
    )
    return (place * stride + config.seed) % count + 1, version


def _snapshot(config: TpchConfig) -> dict[str, pa.Table]:
    tables = {
        "region": _region(config),
        "nation": _nation(config),
        "supplier": _supplier(config),
        "part": _part(config),
        "partsupp": _partsupp(config),
        "customer": _customer(config),
        **_order_tables(config, np.arange(1, config.orders + 1), 0),
    }
    return {name: with_diff(table, 1) for name, table in tables.items()}


# Draws: numbers that depend on the seed, the column and the row alone


def _draw(config: TpchConfig, column: str, ids: Ids) -> Ids:
    """64 well mixed bits for each row (the finalizer of splitmix64)."""
    salt = (zlib.crc32(column.encode()) << 32) ^ (config.seed * 0x9E3779B97F4A7C15)
    mixed: Ids = ids * np.uint64(0xD1342543DE82EF95) + np.uint64(salt % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def _between(config: TpchConfig, column: str, ids: Ids, low: int, high: int) -> Ints:
    """A whole number from `low` to `high`, both inclusive, for each row."""
    drawn = _draw(config, column, ids) % np.uint64(high - low + 1)
    numbers: Ints = drawn.astype(np.int64) + low
    return numbers


def _choice(config: TpchConfig, column: str, ids: Ids, words: Sequence[str]) -> pa.Array:
    places = _between(config, column, ids, 0, len(words) - 1)
    return pa.array(words, pa.string()).take(pa.array(places))


def _joined(config: TpchConfig, column: str, ids: Ids, *lists: Sequence[str]) -> pa.Array:
    """A word of each list, with blanks between."""
    words = [_choice(config, f"{column}{n}", ids, each) for n, each in enumerate(lists)]
    return pc.binary_join_element_wise(*words, " ")


def _comment(config: TpchConfig, column: str, ids: Ids) -> pa.Array:
    return _joined(config, column, ids, _WORDS, _WORDS, _WORDS, _WORDS)


def _numbered(prefix: str, numbers: Ints, width: int = 9) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, padding="0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def _phone(config: TpchConfig, column: str, ids: Ids, nations: Ints) -> pa.Array:
    pieces = [_numbered("", nations + 10, 2)]
    pieces += [
        _numbered("", _between(config, f"{column}{n}", ids, 0, 10**width - 1), width)
        for n, width in enumerate((3, 3, 4))
    ]
    return pc.binary_join_element_wise(*pieces, "-")


def _money(cents: Ints) -> pa.Array:
    """Cents as decimals. A decimal of 128 bits is a low and a high word in the machine's order."""
    words = np.empty((len(cents), 2), dtype="<i8")
    words[:, 0] = cents
    words[:, 1] = cents >> 63
    return pa.Array.from_buffers(
        pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(words.tobytes())]
    )


def _days(days: Ints) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _ids(numbers: Ints) -> Ids:
    return numbers.astype(np.uint64)


def _named(name: str, *columns: Any) -> pa.Table:
    schema = TABLES[name].arrow_schema()
    arrays = [
        values.cast(field.type)
        if isinstance(values, pa.Array | pa.ChunkedArray)
        else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


# The tables


def _region(config: TpchConfig) -> pa.Table:
    keys = np.arange(len(_REGIONS))
    return _named("region", keys, _REGIONS, _comment(config, "r_comment", _ids(keys)))


def _nation(config: TpchConfig) -> pa.Table:
    keys = np.arange(len(_NATIONS))
    names, regions = zip(*_NATIONS, strict=True)
    return _named("nation", keys, names, regions, _comment(config, "n_comment", _ids(keys)))


def _supplier(config: TpchConfig) -> pa.Table:
    keys = np.arange(1, config.suppliers + 1)
    ids = _ids(keys)
    nations = _between(config, "s_nationkey", ids, 0, len(_NATIONS) - 1)
    return _named(
        "supplier",
        keys,
        _numbered("Supplier#", keys),
        _joined(config, "s_address", ids, _COLORS, _WORDS),
        nations,
        _phone(config, "s_phone", ids, nations),
        _money(_between(config, "s_acctbal", ids, -99_999, 999_999)),
        _comment(config, "s_comment", ids),
    )


def _retail_price(parts: Ints) -> Ints:
    return 90_000 + (parts // 10) % 20_001 + 100 * (parts % 1000)


def _part(config: TpchConfig) -> pa.Table:
    keys = np.arange(1, config.parts + 1)
    ids = _ids(keys)
    makers = _between(config, "p_mfgr", ids, 1, 5)
    brands = makers * 10 + _between(config, "p_brand", ids, 1, 5)
    return _named(
        "part",
        keys,
        _joined(config, "p_name", ids, _COLORS, _COLORS, _COLORS, _COLORS, _COLORS),
        _numbered("Manufacturer#", makers, 1),
        _numbered("Brand#", brands, 2),
        _joined(config, "p_type", ids, _SIZES, _FINISHES, _METALS),
        _between(config, "p_size", ids, 1, 50),
        _joined(config, "p_container", ids, _BOXES, _KINDS),
        _money(_retail_price(keys)),
        _comment(config, "p_comment", ids),
    )


def _supplies(config: TpchConfig) -> int:
    """The number of suppliers of each part."""
    return min(4, config.suppliers)


def _supplier_of(config: TpchConfig, parts: Ints, which: Ints) -> Ints:
    """The supplier number `which` of each part; the suppliers of one part differ."""
    stride = max(1, config.suppliers // 4)
    return (parts - 1 + which * stride) % config.suppliers + 1


def _partsupp(config: TpchConfig) -> pa.Table:
    each = _supplies(config)
    parts = np.repeat(np.arange(1, config.parts + 1), each)
    which = np.tile(np.arange(each), config.parts)
    ids = _ids(parts * 4 + which)
    return _named(
        "partsupp",
        parts,
        _supplier_of(config, parts, which),
        _between(config, "ps_availqty", ids, 1, 9999),
        _money(_between(config, "ps_supplycost", ids, 100, 100_000)),
        _comment(config, "ps_comment", ids),
    )


def _customer(config: TpchConfig) -> pa.Table:
    keys = np.arange(1, config.customers + 1)
    ids = _ids(keys)
    nations = _between(config, "c_nationkey", ids, 0, len(_NATIONS) - 1)
    return _named(
        "customer",
        keys,
        _numbered("Customer#", keys),
        _joined(config, "c_address", ids, _COLORS, _WORDS),
        nations,
        _phone(config, "c_phone", ids, nations),
        _money(_between(config, "c_acctbal", ids, -99_999, 999_999)),
        _choice(config, "c_mktsegment", ids, _SEGMENTS),
        _comment(config, "c_comment", ids),
    )


def _order_tables(config: TpchConfig, keys: Ints, version: int) -> dict[str, pa.Table]:
    """The orders of these keys in one version, and their lineitems."""
    ids = _ids(keys) + np.uint64(version * _VERSION)
    ordered = _between(config, "o_orderdate", ids, _FIRST_DAY, _LAST_ORDER_DAY)
    counts = _between(config, "o_lines", ids, 1, _MOST_LINES)
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts) + 1
    lines = np.repeat(ids, counts) * np.uint64(_MOST_LINES + 1) + _ids(numbers)
    parts = _between(config, "l_partkey", lines, 1, config.parts)
    which = _between(config, "l_suppkey", lines, 0, _supplies(config) - 1)
    quantity = _between(config, "l_quantity", lines, 1, 50)
    price = quantity * _retail_price(parts)
    discount = _between(config, "l_discount", lines, 0, 10)
    tax = _between(config, "l_tax", lines, 0, 8)
    shipped = np.repeat(ordered, counts) + _between(config, "l_shipdate", lines, 1, 121)
    received = shipped + _between(config, "l_receiptdate", lines, 1, 30)
    billed = shipped <= _TODAY
    returned = np.where(_between(config, "l_returnflag", lines, 0, 1) == 0, "R", "A")
    lineitem = _named(
        "lineitem",
        np.repeat(keys, counts),
        parts,
        _supplier_of(config, parts, which),
        numbers,
        _money(quantity * 100),
        _money(price),
        _money(discount),
        _money(tax),
        np.where(received <= _TODAY, returned, "N"),
        np.where(billed, "F", "O"),
        _days(shipped),
        _days(np.repeat(ordered, counts) + _between(config, "l_commitdate", lines, 30, 90)),
        _days(received),
        _choice(config, "l_shipinstruct", lines, _INSTRUCTIONS),
        _choice(config, "l_shipmode", lines, _MODES),
        _comment(config, "l_comment", lines),
    )
    total = np.add.reduceat(price * (100 - discount) * (100 + tax) // 10_000, firsts)
    done = np.add.reduceat(billed.astype(np.int64), firsts)
    status = np.where(done == counts, "F", np.where(done == 0, "O", "P"))
    orders = _named(
        "orders",
        keys,
        _between(config, "o_custkey", ids, 1, config.customers),
        status,
        _money(total),
        _days(ordered),
        _choice(config, "o_orderpriority", ids, _PRIORITIES),
        _numbered("Clerk#", _between(config, "o_clerk", ids, 1, config.count(1000))),
        np.zeros(len(keys), np.int32),
        _comment(config, "o_comment", ids),
    )
    return {"orders": orders, "lineitem": lineitem}
