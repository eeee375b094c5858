"""Random histories of real Iceberg tables, as a source reads them.

Rows come by appends, go with files, by positions and by equality, and are written anew, by
pyiceberg and by Iceberg's own library, whose reader says what each snapshot has.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
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

from slackwater.adapter.external.iceberg import catalog_properties

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
KEYS = st.none() | st.integers(0, 4)
PARTS = st.none() | st.sampled_from(["a", "bb", "bc"])
ROWS = st.lists(
    st.fixed_dictionaries({"k": KEYS, "p": PARTS, "v": st.sampled_from(["x", "y", None])}),
    max_size=5,
)
DELETED = st.lists(st.fixed_dictionaries({"k": KEYS, "p": PARTS}), max_size=3)
PLACES = st.lists(st.integers(0, 30), max_size=4)
BY_JAVA = st.tuples(st.just("change"), ROWS, DELETED, PLACES)
STEPS = st.lists(
    st.one_of(
        BY_JAVA,
        BY_JAVA,
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("delete"), st.integers(0, 4)),
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

    def change(self, rows=(), keys=(), places=()):
        if isinstance(rows, int):
            rows, keys = (), [{"k": rows, "p": part} for part in (None, "a", "bb", "bc")]
        with self.by_java() as table:
            known = table.places()
            table.change(rows, keys, [known[each % len(known)] for each in places if known])

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


@histories()
@given(st.sampled_from(sorted(SPECS)), STEPS)
def test_changes_lead_from_each_iceberg_snapshot_to_the_next(iceberg_java, spec, steps):
    with TemporaryDirectory() as folder:
        access = Tables(Path(folder)).access()
        catalog = load_catalog("default", **catalog_properties(access, None))
        catalog.create_namespace("n")
        catalog.create_table(
            ("n", "t"), SCHEMA, partition_spec=SPECS[spec], properties={"format-version": "2"}
        )
        writers = Writers(iceberg_java, access, catalog, spec != "whole")
        history = an_origin(access).opened()
        at = history.newest()
        contents = _counted(history.contents(at))
        assert not contents
        known = []
        for step in steps:
            writers.do(*step)
            expected = writers.found()
            for change in history.after(at):
                at = change.version
                contents.update(_counted(change.rows))
            assert at == history.newest()
            assert +contents == expected
            assert not -contents
            assert _counted(history.contents(at)) == expected
            if at.number:
                known.append((at, expected))
        for version, expected in known:
            assert history.at(version.number) == version
            assert _counted(history.contents(version)) == expected
        # Another one that begins in the middle reads the same.
        fresh = an_origin(access).opened()
        for version, expected in known[len(known) // 2 :][:1]:
            later = Counter(expected)
            for change in fresh.after(version):
                later.update(_counted(change.rows))
            assert +later == +contents
        fresh.close()
        history.close()
        catalog.close()
