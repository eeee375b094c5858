"""Sinks into real Delta tables: the histories of `test_storage_lake_sink.py`, over delta-rs."""

from collections import Counter
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.property.test_storage_lake_sink import (
    DESC,
    END,
    UPPERS,
    Leadership,
    expected,
    keyed_history,
    run,
)
from tests.support.storage.fake_lakes import Crash

from slackwater.adapter.external.delta import DeltaTarget
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.table import LakeTable

KEYS = st.sampled_from([(), ("k",), ("k", "v")])
ROWS = st.dictionaries(
    st.sampled_from([None, 1, 2]), st.sampled_from(["a", "b", None, "-"]), min_size=2, max_size=3
)
DENSE = st.dictionaries(st.integers(0, END - 1), ROWS, min_size=5, max_size=12)
FATES = st.sampled_from(["crash before", "crash after", "compact", "append"])


@dataclass
class Faulty:
    """A Delta table, and what befalls each commit, by its number."""

    target: DeltaTarget
    fates: dict[int, str]
    calls: int = 0
    tables: list[LakeTable] = field(default_factory=list)

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
        theirs = DeltaTable(self.target.uri)
        match fate:
            case "crash before":
                raise Crash
            case "compact":
                theirs.optimize.compact()
                theirs.create_checkpoint()
                theirs.vacuum(0, enforce_retention_duration=False, dry_run=False)
            case "append":
                theirs.create_write_transaction([], "append", theirs.schema(), [])
        self.tables[-1].commit(changes, progress)
        if fate == "crash after":
            raise Crash


@histories()
@given(DENSE, UPPERS, st.dictionaries(st.integers(0, 10), FATES, max_size=4), KEYS)
def test_a_delta_table_has_each_change_once(changes, uppers, fates, key):
    made, rows = keyed_history(changes)
    with TemporaryDirectory() as folder:
        config = LakeSinkConfig(DeltaPlace(folder), "UPSERT" if key else "APPEND", key)
        target = DeltaTarget(folder, "the_sink", "w", config, DESC)
        target.ensure()
        run(Faulty(target, fates), config, made, uppers, Leadership())
        found = DeltaTable(folder).to_pyarrow_table().to_pylist()
        assert Counter(tuple(row.values()) for row in found) == expected(config, made, rows)
