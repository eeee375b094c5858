"""Random histories of real Iceberg tables, as a source reads them.

Rows come by appends, go with files, by positions and by equality, and are written anew, by
pyiceberg and by Iceberg's own library, whose reader says what each snapshot has.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, NestedField, StringType
from tests.property.histories import histories
from tests.support.iceberg.java import Tables
from tests.support.iceberg.writing import an_origin, written_by_java

from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.storage.iceberg.columns import table_columns
from slackwater.storage.ingestion import IngestionStep
from slackwater.storage.lake.ingestion import LakeIngestion, LakeTableConfig
from slackwater.storage.lake.source_columns import source_columns

pytestmark = pytest.mark.spark

SCHEMA = Schema(
    NestedField(1, "k", IntegerType()),
    NestedField(2, "p", StringType()),
    NestedField(3, "v", StringType()),
)
SPECS = {
    "whole": PartitionSpec(),
    "identity": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    "several": PartitionSpec(
        PartitionField(1, 1000, BucketTransform(2), "k_bucket"),
        PartitionField(2, 1001, TruncateTransform(1), "p_trunc"),
    ),
}
KEYS = st.none() | st.integers(0, 1)
PARTS = st.sampled_from([None, "a", "bb", "bc"])
ROWS = st.lists(
    st.fixed_dictionaries({"k": KEYS, "p": PARTS, "v": st.sampled_from(["x", "y", None])}),
    max_size=5,
)
DELETED = st.lists(st.fixed_dictionaries({"k": KEYS, "p": PARTS}), max_size=3)
PLACES = st.lists(st.integers(0, 30), max_size=4)
BY_JAVA = st.tuples(st.just("change"), ROWS, DELETED, PLACES, st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        BY_JAVA,
        BY_JAVA,
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("delete"), st.integers(0, 1)),
        st.tuples(st.just("overwrite"), ROWS),
        st.tuples(st.just("partitions"), ROWS),
        st.tuples(st.just("compact")),
        st.tuples(st.just("split")),
    ),
    min_size=1,
    max_size=7,
)


@dataclass
class Writers:
    """Both libraries over one table."""

    java: Any
    access: Any
    catalog: Any
    is_partitioned: bool
    by_pyiceberg: bool = field(init=False)

    def __post_init__(self):
        # pyiceberg computes buckets by a package that we do not have.
        fields = self.loaded().spec().fields
        self.by_pyiceberg = all(isinstance(each.transform, IdentityTransform) for each in fields)

    def loaded(self):
        return self.catalog.load_table(("n", "t"))

    def found(self):
        return Counter(map(tuple, self.java.rows(self.loaded().metadata_location)))

    def by_java(self):
        return written_by_java(self.java, self.access, ("n", "t"))

    def do(self, kind, *given):
        if kind == "split":
            self.split()
        elif kind == "compact":
            with self.by_java() as table:
                table.compact()
        elif kind == "change" or not self.by_pyiceberg:
            self.change(*given)
        else:
            try:
                self.write(kind, *given)
            except ValueError as refused:
                # pyiceberg writes no file anew of which rows are deleted by equality.
                if "equality deletes" not in str(refused):
                    raise
                self.change(*given)

    def write(self, kind, given):
        """What pyiceberg does."""
        if kind == "append":
            self.loaded().append(_arrow(given))
        elif kind == "delete":
            self.loaded().delete(EqualTo("k", given))
        elif kind == "overwrite" or not self.is_partitioned:
            self.loaded().overwrite(_arrow(given))
        else:
            self.loaded().dynamic_partition_overwrite(_arrow(given))

    def change(self, rows=(), keys=(), places=(), taken_back=0):
        if isinstance(rows, int):
            rows, keys = (), [{"k": rows, "p": part} for part in (None, "a", "bb", "bc")]
        with self.by_java() as table:
            known = table.places()
            positions = [known[each % len(known)] for each in places if known]
            table.change(rows, keys, positions, taken_back)

    def split(self):
        """The table gets another partition spec, or loses it."""
        with self.loaded().update_spec() as spec:
            if self.is_partitioned:
                for each in self.loaded().spec().fields:
                    spec.remove_field(each.name)
            else:
                spec.add_identity("p")
        self.is_partitioned = not self.is_partitioned


def _arrow(rows):
    return pa.Table.from_pylist(rows, SCHEMA.as_arrow())


def _counted(pieces):
    found = Counter()
    for piece in pieces:
        for row in piece.to_pylist():
            diff = row.pop("__diff", 1)
            found[tuple(row.values())] += diff
    return found


@dataclass
class Reader:
    """A source's copy of the table, which follows the changes that a history tells."""

    history: Any
    at: Any = field(init=False)
    rows: Counter = field(init=False)

    def __post_init__(self):
        self.at = self.history.newest()
        self.rows = _counted(self.history.contents(self.at))

    def follow(self):
        for change in self.history.after(self.at):
            self.at = change.version
            names = [each.name for each in change.columns]
            deleted = [value for each in change.deleted for value in each.to_pylist()]

            def goes(row, deleted=deleted, names=names):
                named = dict(zip(names, row, strict=True))
                return any(value.items() <= named.items() for value in deleted)

            found = _counted(change.rows)
            self.rows = Counter({row: n for row, n in self.rows.items() if not goes(row)})
            # Of what goes by its values nothing has to go once more.
            self.rows.update({row: n for row, n in found.items() if n > 0 or not goes(row)})
        assert self.at == self.history.newest()
        assert not -self.rows
        self.rows = +self.rows


@dataclass
class Source:
    """A source of the table: its ingestion, and what is durable of it."""

    history: Any
    rows_there: Counter = field(default_factory=Counter)
    state: str | None = None

    def __post_init__(self):
        columns = self.history.columns(self.history.newest())
        self.desc = source_columns(columns, "s")
        config = LakeTableConfig("s", "the table t", "s", self.desc, columns)
        upstream = SimpleNamespace(history=lambda: self.history, forget=lambda: None)
        self.ingestion = LakeIngestion(config, upstream, self, None)

    def follow(self):
        while (step := self.ingestion.poll(0)) is not None:
            if isinstance(step, IngestionStep):
                assert not step.errors
                if (found := step.updates.get("s")) is not None:
                    self.rows_there.update(_counted([found]))
                assert not -self.rows_there
                self.rows_there = +self.rows_there
                self.ingestion.committed(step)

    def rows(self):
        return self.desc.with_diffs(self.rows_there.items())

    def rows_where(self, column, values):
        place, known = self.desc.stored_names.index(column), values.to_pylist()
        found = ((row, n) for row, n in self.rows_there.items() if row[place] in known)
        return self.desc.with_diffs(found)

    def lacking(self, changes):
        after = Counter(self.rows_there)
        after.update(_counted([changes]))
        return -sum(min(0, count) for count in after.values())

    def errors(self):
        return ()

    def stage(self, rows):
        raise AssertionError("few rows are in memory")


@histories()
@given(st.sampled_from(sorted(SPECS)), STEPS)
@pytest.mark.nightly
def test_changes_lead_from_each_iceberg_snapshot_to_the_next(iceberg_java, spec, steps):
    with TemporaryDirectory() as folder:
        access = Tables(Path(folder)).access()
        catalog = load_catalog("default", **catalog_properties(access, None))
        catalog.create_namespace("n")
        catalog.create_table(
            ("n", "t"), SCHEMA, partition_spec=SPECS[spec], properties={"format-version": "2"}
        )
        writers = Writers(iceberg_java, access, catalog, spec != "whole")
        columns = table_columns(SCHEMA.model_dump(by_alias=True, mode="json"))
        readers = [Reader(an_origin(access, columns=each).opened()) for each in ((), columns)]
        source = Source(an_origin(access, columns=columns).opened())
        source.follow()
        known = []
        for step in steps:
            writers.do(*step)
            expected = writers.found()
            source.follow()
            assert source.rows_there == expected
            for reader in readers:
                reader.follow()
                assert reader.rows == expected
                assert _counted(reader.history.contents(reader.at)) == expected
                assert reader.history.known_rows(reader.at) >= expected.total()
            known.append((reader.at, expected))
        for version, expected in known:
            if version.number:
                assert reader.history.at(version.number) == version
                assert _counted(reader.history.contents(version)) == expected
        # Another one that begins in the middle comes to the same.
        version, expected = known[len(known) // 2]
        late = Reader(an_origin(access).opened())
        late.at, late.rows = version, Counter(expected)
        late.follow()
        assert late.rows == reader.rows
        for each in (*readers, late, source):
            each.history.close()
        catalog.close()
