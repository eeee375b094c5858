"""Sinks into real Iceberg tables: the histories of `test_storage_lake_sink.py`, over pyiceberg.

Iceberg's own library reads the tables.
"""

import uuid
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import parse_transform
from tests.property.histories import histories
from tests.property.test_delta_commits import DENSE, KEYS
from tests.property.test_storage_lake_sink import (
    DESC,
    UPPERS,
    Leadership,
    expected,
    keyed_history,
    run,
)
from tests.support.iceberg.java import Tables
from tests.support.iceberg.writing import written_by_java
from tests.support.storage.fake_lakes import Faulty

from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.storage.iceberg.compaction import CompactionBounds
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig

pytestmark = pytest.mark.spark

FATES = st.sampled_from(
    ["crash before", "crash after", "expire", "append", "repartition", "compact"]
)
DELETES = st.sampled_from(["equality", "rewrite"])
BOUNDS = st.sampled_from(
    [
        CompactionBounds(),
        CompactionBounds(small_bytes=0, share=0),
        CompactionBounds(most_bytes=3_000, share=1),
    ]
)
"""Those of compactions: everything, deletes alone, some of the files."""
EVERY = st.sampled_from([0, 1, 2, 3])
TIDIED = st.sampled_from(["crash after", "compact", "append", "repartition"])
CONFIGS = st.builds(
    lambda key, deletes, every: LakeSinkConfig(
        IcebergPlace("n", "t"),
        "UPSERT" if key else "APPEND",
        key,
        deletes=deletes,
        compact_every=every,
    ),
    KEYS,
    DELETES,
    EVERY,
)
SPECS = st.sampled_from([(), ("identity k",), ("bucket[2] v",), ("void k", "truncate[1] v")])
"""The partitions of a table: transforms of its columns."""


def partitioned(table, spec):
    """Lets the table have these partitions from now on."""
    with table.update_spec() as update:
        for each in table.spec().fields:
            update.remove_field(each.name)
        for each in spec:
            transform, column = each.split()
            update.add_field(column, parse_transform(transform), f"{column} {uuid.uuid4()}")


def others(loaded, schema, compact):
    """What other writers do, by the names of their fates; `loaded` gives the table as it is now,
    and `compact` is what Iceberg's own library does."""

    def expire():
        theirs = loaded()
        current = theirs.metadata.current_snapshot_id
        old = [s.snapshot_id for s in theirs.metadata.snapshots if s.snapshot_id != current]
        if old:
            theirs.maintenance.expire_snapshots().by_ids(old).commit()

    def append():
        loaded().append(schema.empty_table())

    def repartition():
        theirs = loaded()
        partitioned(theirs, () if theirs.spec().fields else ("bucket[3] k",))

    return {"expire": expire, "append": append, "repartition": repartition, "compact": compact}


@histories()
@given(
    DENSE,
    UPPERS,
    st.tuples(
        st.dictionaries(st.integers(0, 10), FATES, max_size=4),
        st.dictionaries(st.integers(0, 10), TIDIED, max_size=2),
    ),
    st.tuples(CONFIGS, BOUNDS),
    SPECS,
)
def test_an_iceberg_table_has_each_change_once(iceberg_java, changes, uppers, fates, asked, spec):
    config, bounds = asked
    made, rows = keyed_history(changes)
    with TemporaryDirectory() as folder:
        access = Tables(Path(folder)).access()
        target = IcebergTarget(access, None, "w", "the_sink", sink_columns(config, DESC), bounds)
        target.ensure()
        catalog = load_catalog("default", **catalog_properties(access, None))
        loaded = partial(catalog.load_table, target.rows.identifier)
        partitioned(loaded(), spec)

        def compact():
            with written_by_java(iceberg_java, access, target.rows.identifier) as theirs:
                theirs.compact()

        run(
            Faulty(target, others(loaded, target.rows.schema, compact), *fates),
            config,
            made,
            uppers,
            Leadership(),
        )
        found = iceberg_java.rows(loaded().metadata_location)
        assert Counter(map(tuple, found)) == expected(config, made, rows)
        if config.mode == "APPEND" or config.deletes == "rewrite":
            by_library = loaded().scan().to_arrow().to_pylist()
            assert Counter(tuple(row.values()) for row in by_library) == Counter(map(tuple, found))
        catalog.close()
