"""Sinks into real Delta tables: the histories of `test_storage_lake_sink.py`, over delta-rs."""

from collections import Counter
from tempfile import TemporaryDirectory

import deltalake
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
from tests.support.storage.fake_lakes import Faulty

from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig

KEYS = st.sampled_from([(), ("k",), ("k", "v")])
ROWS = st.dictionaries(
    st.sampled_from([None, 1, 2]), st.sampled_from(["a", "b", None, "-"]), min_size=2, max_size=3
)
DENSE = st.dictionaries(st.integers(0, END - 1), ROWS, min_size=5, max_size=12)
FATES = st.sampled_from(["crash before", "crash after", "compact", "append"])


def others(target):
    """What other writers do, by the names of their fates."""

    def compact():
        table = target.folder.opened(deltalake)
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)

    def append():
        table = target.folder.opened(deltalake)
        table.create_write_transaction([], "append", table.schema(), [])

    return {"compact": compact, "append": append}


HISTORY = (DENSE, UPPERS, st.dictionaries(st.integers(0, 10), FATES, max_size=4), KEYS)


def has_each_change_once(folder, changes, uppers, fates, key):
    made, rows = keyed_history(changes)
    config = LakeSinkConfig(DeltaPlace(folder.uri), "UPSERT" if key else "APPEND", key)
    target = DeltaTarget(folder, "the_sink", "w", config, DESC)
    target.ensure()
    run(Faulty(target, others(target), fates), config, made, uppers, Leadership())
    found = folder.opened(deltalake).to_pyarrow_table().to_pylist()
    assert Counter(tuple(row.values()) for row in found) == expected(config, made, rows)


@histories()
@given(*HISTORY)
def test_a_delta_table_has_each_change_once(changes, uppers, fates, key):
    with TemporaryDirectory() as folder:
        has_each_change_once(DeltaFolder.at(folder), changes, uppers, fates, key)


@histories()
@given(*HISTORY)
def test_a_delta_table_in_s3_has_each_change_once(s3, changes, uppers, fates, key):
    folder = DeltaFolder.at(f"s3://{s3.new_bucket()}/a/table", s3.access)
    has_each_change_once(folder, changes, uppers, fates, key)
