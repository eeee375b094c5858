"""Sinks into real Iceberg tables: the histories of `test_storage_lake_sink.py`, over pyiceberg.

Iceberg's own library reads the tables.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
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
from tests.support.storage.fake_lakes import Crash

from slackwater.adapter.external.iceberg import IcebergTarget, catalog_properties
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.table import LakeTable

pytestmark = pytest.mark.spark

FATES = st.sampled_from(["crash before", "crash after", "expire", "append"])


@dataclass
class Faulty:
    """An Iceberg table, and what befalls each commit, by its number."""

    target: IcebergTarget
    catalog: Catalog
    fates: dict[int, str]
    calls: int = 0
    tables: list[LakeTable] = field(default_factory=list)

    @property
    def theirs(self):
        return self.catalog.load_table(self.target.rows.identifier)

    def table(self):
        self.tables.append(self.target.opened())
        return self

    def load(self):
        return self.tables[-1].load()

    def close(self):
        self.tables.pop().close()

    def commit(self, changes, progress):
        fate = self.fates.get(self.calls, "done")
        self.calls += 1
        match fate:
            case "crash before":
                raise Crash
            case "expire":
                theirs = self.theirs
                current = theirs.metadata.current_snapshot_id
                old = [s.snapshot_id for s in theirs.metadata.snapshots if s.snapshot_id != current]
                if old:
                    theirs.maintenance.expire_snapshots().by_ids(old).commit()
            case "append":
                self.theirs.append(self.target.rows.schema.empty_table())
        self.tables[-1].commit(changes, progress)
        if fate == "crash after":
            raise Crash


@histories()
@given(DENSE, UPPERS, st.dictionaries(st.integers(0, 10), FATES, max_size=4), KEYS)
def test_an_iceberg_table_has_each_change_once(iceberg_java, changes, uppers, fates, key):
    made, rows = keyed_history(changes)
    with TemporaryDirectory() as folder:
        config = LakeSinkConfig(IcebergPlace("n", "t"), "UPSERT" if key else "APPEND", key)
        access = Tables(Path(folder)).access()
        target = IcebergTarget(access, None, "w", "the_sink", sink_columns(config, DESC))
        target.ensure()
        faulty = Faulty(target, load_catalog("default", **catalog_properties(access, None)), fates)
        run(faulty, config, made, uppers, Leadership())
        found = iceberg_java.rows(faulty.theirs.metadata_location)
        faulty.catalog.close()
        assert Counter(map(tuple, found)) == expected(config, made, rows)
