"""Shards, consolidation and the index of parts against models that are obviously right."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.persist.persistence import (
    DESC,
    compacted,
    own_shard,
    table_shard,
    updates,
)

from slackwater.persist.blobs import file_part
from slackwater.persist.client import Append, TablesAppend
from slackwater.persist.consolidate import consolidate
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import FileBody, InlineBody, Part, Uniform

LEAVES = [
    pa.int32(),
    pa.string(),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.decimal128(20, 2),
]
KEYS = [pa.string(), pa.int32(), pa.struct([("k", pa.string())]), pa.list_(pa.string())]


def lists_structs_and_maps(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Types of which `inner` is a part."""
    return st.one_of(
        inner.map(pa.list_),
        st.lists(inner, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
        ),
        st.tuples(st.sampled_from(KEYS), inner).map(lambda kinds: pa.map_(*kinds)),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), lists_structs_and_maps, max_leaves=4)


def values(kind: pa.DataType) -> st.SearchStrategy:
    if pa.types.is_integer(kind):
        inner = st.integers(-2, 2)
    elif pa.types.is_floating(kind):
        inner = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])
    elif pa.types.is_boolean(kind):
        inner = st.booleans()
    elif pa.types.is_decimal(kind):
        inner = st.integers(-1, 1)
    elif pa.types.is_string(kind):
        inner = st.sampled_from(["", "a", "ab", "b"])
    elif pa.types.is_map(kind):
        entries = st.tuples(values(kind.key_type).filter(is_present), values(kind.item_type))
        inner = st.lists(entries, max_size=3, unique_by=lambda entry: repr(entry[0]))
    elif pa.types.is_list(kind):
        inner = st.lists(values(kind.value_type), max_size=3)
    else:
        inner = st.fixed_dictionaries({f.name: values(f.type) for f in kind})
    return st.none() | inner


def is_present(value) -> bool:
    return value is not None


def canonical(value, kind):
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return "nan" if math.isnan(value) else value + 0.0
    if pa.types.is_map(kind):
        return (
            "map",
            *sorted(
                ((canonical(k, kind.key_type), canonical(v, kind.item_type)) for k, v in value),
                key=repr,
            ),
        )
    if pa.types.is_list(kind):
        return ("list", *(canonical(v, kind.value_type) for v in value))
    if pa.types.is_struct(kind):
        return ("struct", *(canonical(value[f.name], f.type) for f in kind))
    return value


@histories()
@given(st.data(), KINDS, KINDS)
def test_consolidation_is_the_sum_by_value(data, first, second):
    rows = data.draw(
        st.lists(st.tuples(values(first), values(second), st.integers(-2, 2)), max_size=12)
    )
    table = pa.table(
        [
            pa.array([row[0] for row in rows], first),
            pa.array([row[1] for row in rows], second),
            pa.array([row[2] for row in rows], pa.int64()),
        ],
        names=["a", "b", "__diff"],
    )
    cut = data.draw(st.integers(0, len(rows)))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])

    def model(found):
        expected = Counter()
        for row in found.to_pylist():
            key = (canonical(row["a"], first), canonical(row["b"], second))
            expected[key] += row["__diff"]
        return {key: count for key, count in expected.items() if count}

    result = consolidate(table)
    result.validate(full=True)
    assert model(result) == model(table)
    assert result.num_rows == len(model(table))


@st.composite
def steps_of_commits(draw):
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        width = draw(st.integers(0, 4))
        rows = draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["own", "table", "other"]),
                    st.integers(0, 2),
                    st.integers(0, max(0, width - 1)),
                ),
                max_size=4 if width else 0,
            )
        )
        kind = draw(st.sampled_from(["append", "append", "append", "truncate", "reopen", "merge"]))
        steps.append((kind, width, rows))
    return steps


@histories(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps_of_commits())
def test_reads_at_every_time_agree_with_the_history(new_env, steps):
    with tempfile.TemporaryDirectory() as folder, new_env(Path(folder)) as env:
        client = env.lead()
        shards = {"own": own_shard(client), "table": table_shard(client)}
        shards["other"] = table_shard(client)
        model: dict[str, list[tuple[int, int]]] = {name: [] for name in shards}
        retractions: dict[str, list[tuple[int, int]]] = {name: [] for name in shards}
        upper, epoch = 1, 1
        client.commits.commit([Append(shards["own"], 0, 1, ())], tables=TablesAppend(0, 1, {}))
        for kind, width, rows in steps:
            if kind == "reopen":
                client = env.lead(expected_epoch=epoch)
                epoch += 1
                continue
            if kind == "merge":
                for shard in shards.values():
                    compacted(client, shard, 0)
                continue
            width = max(1, width) if kind == "truncate" else width
            new = dict.fromkeys(shards, ())
            if kind == "truncate":
                for name, shard in shards.items():
                    new[name] = client.reads.negation(shard, upper).at(upper)
                    present = Counter(k for k, _ in model[name])
                    present.subtract(k for k, _ in retractions[name])
                    retractions[name] += [(k, upper) for k in present.elements()]
            else:
                for name in shards:
                    mine = [(k, upper + t) for owner, k, t in rows if owner == name]
                    model[name] += mine
                    table = updates(*((k, None, t, 1) for k, t in mine))
                    if len(mine) > 1:
                        new[name] = (
                            file_part(
                                client.blobs, table, client.files.shard_directory(shards[name])
                            ),
                        )
                    else:
                        new[name] = client.files.new_parts(shards[name], table)
            client.commits.commit(
                [Append(shards["own"], upper, upper + width, new.pop("own"))],
                tables=TablesAppend(
                    upper, upper + width, {shards[name]: parts for name, parts in new.items()}
                ),
            )
            upper += width
        for reader in (client, env.lead(expected_epoch=epoch)):
            for name, shard in shards.items():
                assert reader.reads.state(shard).upper == upper
                for as_of in range(upper):
                    expected = Counter(k for k, t in model[name] if t <= as_of)
                    expected.subtract(k for k, t in retractions[name] if t <= as_of)
                    found = Counter(reader.reads.snapshot(shard, as_of).column("k").to_pylist())
                    assert found == +expected, (name, as_of)
                    between = reader.reads.parts_between(shard, as_of, as_of + 1)
                    changes = reader.reads.read(between, DESC, lower=as_of, upper=as_of + 1)
                    net = sum(changes.column("__diff").to_pylist())
                    assert net == sum(t == as_of for _, t in model[name]) - sum(
                        t == as_of for _, t in retractions[name]
                    )


@histories()
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=25),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_the_index_finds_what_a_scan_finds(steps, lower, upper):
    index, everything, now = PartIndex(), [], 0
    live: list[Part] = []
    for number, (kind, delay, width) in enumerate(steps):
        now += delay
        body: InlineBody | FileBody = InlineBody(b"x")
        if kind == 1:
            body = FileBody(f"f{number}", 1, 1, Uniform(now, 1))
            width = 0
        if kind == 2 and live:
            body = FileBody(live.pop().body.uri, 1, 1, Uniform(now, -1))
            width = 0
        part = Part(number, 1, now, now + width + 1, body, 1, now, now + width, False)
        if kind == 1:
            live.append(part)
        if kind == 3 and everything:
            gone = {p.part_id for p in everything if isinstance(p.body, InlineBody)}
            gone = set(sorted(gone)[:2])
            everything = [p for p in everything if p.part_id not in gone]
            index = index.replaced(gone, [part])
        else:
            index.add(part)
        everything.append(part)

    def order(parts):
        return sorted(parts, key=lambda p: (p.min_time, p.part_id))

    met = [p for p in everything if p.min_time < upper and p.max_time >= lower]
    assert list(index.between(lower, upper)) == (order(met) if lower < upper else [])
    began = [p for p in everything if p.min_time <= upper]
    net = Counter()
    for part in began:
        if isinstance(part.body, FileBody):
            net[part.body.uri] += part.body.uniform.diff
    kept = [p for p in began if isinstance(p.body, InlineBody) or net[p.body.uri]]
    assert list(index.at(upper)) == order(kept)
    rebuilt = PartIndex.of(everything)
    assert rebuilt.at(upper) == index.at(upper)
    assert rebuilt.between(lower, upper) == index.between(lower, upper)
    assert rebuilt.parts() == index.parts() == tuple(order(everything))
