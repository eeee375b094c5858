"""Contents read of parts of every kind: each row as often as its diffs sum up to."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from tests.support.compute.incremental import Bench, table_of

from slackwater.compute.engine import Contents, ViewContents
from slackwater.compute.relations import relation_json
from slackwater.persist import blobs
from slackwater.persist.parts import NewPart, Uniform
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

pytestmark = pytest.mark.spark

DESC = RelationDesc.of(k="integer", s="string")
LAST = 5
HISTORIES = 25
QUERIES = {
    ("k", "s"): "SELECT k, s FROM t",
    ("k",): "SELECT k FROM t WHERE s IS NOT NULL OR k IS NULL",
    (): "SELECT 1 AS one FROM t",
}


@pytest.fixture(scope="module")
def bench(declared, tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("retractions"), declared)
    made.table("t", DESC)
    yield made
    made.close()


class History:
    """Updates of few rows that are often equal, in parts of every kind."""

    def __init__(self, bench, seed):
        self._random = random.Random(seed)
        self._files = bench.client.files
        self._directory = self._files.shard_directory(bench.relations["t"][1])
        self.updates = []
        self.parts = []
        for _ in range(self._random.randint(1, 3)):
            self._add(self._rows(self._random.choice([3, 40]), 1))
        for _ in range(self._random.randint(0, 3)):
            self._add(self._retractions())
        if self._random.random() < 0.3:
            self._add(self._rows(3, self._random.choice([2, 3])))

    def _row(self):
        chosen = self._random
        return chosen.choice([None, 1, 2, 3, 4]), chosen.choice([None, "", "a", "b"])

    def _rows(self, count, diff):
        return [(self._row(), self._random.randint(1, LAST - 1), diff) for _ in range(count)]

    def _retractions(self):
        """Of rows that are there, and rows that come in their place."""
        there = Counter()
        for row, _, diff in self.updates:
            there[row] += diff
        rows = [row for row, count in there.items() if count > 0]
        gone = self._random.sample(rows, min(len(rows), self._random.randint(1, 3)))
        at = self._random.choice([LAST - 1, LAST])
        new = self._rows(1, 1) if self._random.random() < 0.5 else []
        return [(row, at, -1) for row in gone] + new

    def _add(self, updates):
        if not updates:
            return
        self.updates += updates
        kind = self._random.choice(["inline", "file", "uniform"])
        if kind == "uniform":
            self.parts += [self._uniform(each) for each in self._alike(updates)]
        else:
            table = table_of(DESC, updates)
            make = blobs.inline_part if kind == "inline" else self._file
            self.parts.append(make(table))

    def _file(self, table):
        return blobs.file_part(self._files.blobs, table, self._directory)

    def _alike(self, updates):
        kinds = {(time, diff) for _, time, diff in updates}
        return [[u for u in updates if u[1:] == kind] for kind in sorted(kinds)]

    def _uniform(self, updates):
        (_, time, diff) = updates[0]
        rows = table_of(DESC, updates).drop_columns([TIME_COLUMN, DIFF_COLUMN])
        uniform = Uniform(Timestamp(time), diff)
        body = blobs.uniform_file(self._files.blobs, rows, self._directory, uniform)
        return NewPart(body, len(updates), uniform.time, uniform.time, diff != 1)

    def at(self, time):
        """How often each row is there; None: less than not at all, at one of the times."""
        counts = Counter()
        for row, at, diff in self.updates:
            if at <= time:
                counts[row] += diff
        return counts


def read(bench, parts, query, time):
    """What a query answers over the parts at a time."""
    relation = relation_json(parts, DESC, as_of=Timestamp(time))
    kept = bench.plan(query).kept
    contents = {bench.relations["t"][0]: Contents(DESC, relation)}
    view = ViewContents(kept, kept.plan.schema, Timestamp(time), contents)
    answer: pa.Table = bench.engine.collect_view(view)
    found = Counter()
    for row in answer.drop_columns([TIME_COLUMN]).to_pylist():
        *values, diff = row.values()
        found[tuple(values)] += diff
    return +found


def expected(counts, columns):
    found = Counter()
    for (k, s), count in counts.items():
        if columns == ("k", "s"):
            found[(k, s)] += count
        elif columns == ("k",):
            found[(k,)] += count if s is not None or k is None else 0
        else:
            found[(1,)] += count
    return +found


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.sampled(5)
def test_each_row_is_there_as_often_as_its_diffs_sum_up_to(bench, seed):
    history = History(bench, seed)
    for time in (LAST - 1, LAST):
        counts = history.at(time)
        for columns, query in QUERIES.items():
            if all(count >= 0 for count in counts.values()):
                assert read(bench, history.parts, query, time) == expected(counts, columns)


@pytest.mark.parametrize("kind", ["inline", "file"])
def test_what_is_retracted_and_not_there_is_an_error_beside_many_rows(bench, kind):
    rows = [((number, "x"), 1, 1) for number in range(100)]
    directory = bench.client.files.shard_directory(bench.relations["t"][1])
    store = bench.client.files.blobs
    gone = table_of(DESC, [((3, "x"), 2, -1), ((3, "x"), 2, -1)])
    many = blobs.file_part(store, table_of(DESC, rows), directory)
    few = blobs.inline_part(gone) if kind == "inline" else blobs.file_part(store, gone, directory)
    with pytest.raises(SlackwaterError, match="has a negative multiplicity"):
        read(bench, (many, few), QUERIES["k", "s"], 2)
    assert read(bench, (many, few), QUERIES["k", "s"], 1).total() == 100
