"""Sources of real Delta tables: what delta-rs does to a table, read by the ingestion of sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.property.test_storage_lake_source import BOUNDS, DESC, ROWS, World, happen

from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.delta_history import DeltaHistory
from slackwater.storage.lake.ingestion import LakeTableConfig

WRITES = ["append", "append", "delete", "update", "merge", "overwrite", "compact", "restore"]
READS = ["checkpoint", "poll", "poll", "crash", "resnapshot"]
OPERATIONS = st.tuples(
    st.sampled_from([*WRITES, *READS]),
    st.lists(ROWS, min_size=1, max_size=4),
    st.integers(0, 3),
)


def table_of(rows):
    keys, texts = zip(*rows, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(texts, pa.string())})


@dataclass
class Folder:
    """A Delta table as the world of a source sees it."""

    path: str

    def history(self):
        return DeltaHistory("s", DeltaFolder.at(self.path))

    def forget(self):
        """Nothing is open."""

    @property
    def last(self):
        return SimpleNamespace(at=self.history().newest())

    @property
    def known(self):
        return self

    def __getitem__(self, version):
        """The rows of a version, as delta-rs reads them."""
        history = self.history()
        numbers = range(history.newest().number + 1)
        (number,) = (each for each in numbers if history.at(each).version == version)
        table = DeltaTable(self.path, version=number)
        builder = QueryBuilder().register("t", table)
        found = pa.table(builder.execute("SELECT k, v FROM t").read_all()).to_pylist()
        return SimpleNamespace(rows=Counter((row["k"], row["v"]) for row in found))

    def do(self, operation, rows, number):
        table, wanted = DeltaTable(self.path), f"k = {number}"
        match operation:
            case "append" | "overwrite":
                write_deltalake(self.path, table_of(rows), mode=operation)
            case "delete":
                table.delete(wanted if number else None)
            case "update":
                table.update(updates={"v": "'c'"}, predicate=wanted)
            case "merge":
                once = list({key: (key, text) for key, text in rows}.values())
                merger = table.merge(
                    table_of(once), "t.k = s.k", source_alias="s", target_alias="t"
                )
                merger.when_matched_delete(
                    predicate="s.v IS NULL"
                ).when_matched_update_all().when_not_matched_insert_all().execute()
            case "compact":
                table.optimize.compact()
            case "restore" if table.version():
                table.restore(max(0, table.version() - 1 - number))
            case "checkpoint":
                table.create_checkpoint()


@histories()
@given(
    st.lists(OPERATIONS, min_size=3, max_size=14),
    st.sampled_from(BOUNDS),
    st.sampled_from([None, ["v"]]),
)
def test_a_source_has_what_a_delta_table_has_in_one_version(done, bounds, partition):
    with TemporaryDirectory() as path:
        write_deltalake(path, table_of([(1, "a"), (2, "b"), (1, "a")]), partition_by=partition)
        folder = Folder(path)
        history = folder.history()
        columns = history.columns(history.newest())
        world = World(LakeTableConfig("s", "t", "s", DESC, columns, None, *bounds), folder)
        for operation, rows, number in done:
            if operation in ("poll", "crash", "resnapshot"):
                happen(world, operation, {}, "same", number)
                assert world.said is None
            else:
                folder.do(operation, rows, number)
        while (step := world.poll()) is not None:
            world.commit(step)
            world.acknowledge(step)
        assert world.said is None
        assert world.contents == folder[folder.last.at.version].rows
