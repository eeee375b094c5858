"""Tables of Iceberg for sinks, by pyiceberg's catalogs and a commit of our own.

pyiceberg tries a commit again by itself when another writer was first, and then a commit that is
out of date is let through. So a commit here has the requirement that the table is as it was loaded,
and who lost tells it.

Source: docs/decisions 0077.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slackwater.adapter.external import libraries
from slackwater.adapter.external.iceberg_catalogs import failures, opened
from slackwater.adapter.external.iceberg_files import CommitFiles, has_files
from slackwater.adapter.external.iceberg_listing import Listed
from slackwater.adapter.external.iceberg_partitions import WrittenSpec, whole_spec, written_spec
from slackwater.adapter.external.iceberg_rewrites import CurrentFiles, Manifests, Rewritten
from slackwater.adapter.external.iceberg_rows import schema_json
from slackwater.repr.errors import FatalError, SlackwaterError, first_line, user_error
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.bounds import Keys
from slackwater.storage.iceberg.compaction import CompactionBounds
from slackwater.storage.iceberg.partitions import are_told_by
from slackwater.storage.iceberg.progress import (
    SINK,
    History,
    OtherSink,
    ProgressLost,
    progress_in,
    properties_of,
    recorded,
)
from slackwater.storage.iceberg.projection import Unreadable
from slackwater.storage.iceberg.schema import (
    Fit,
    Json,
    Misfit,
    SinkColumns,
    fitted,
    new_schema,
    with_added,
)
from slackwater.storage.lake.table import (
    LakeChanges,
    LakeProgress,
    LakeTable,
    TableChanged,
    Written,
    unheard,
)
from slackwater.storage.sink_errors import progress_lost, unreachable

MAIN = "main"
_FORMAT = 2
_PROPERTIES = {
    "format-version": str(_FORMAT),
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of tables that sinks make. Each commit writes the table's metadata anew: without the
second one, all of these files would stay."""


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """The table of a sink, as `LakeTarget` promises. `writer` is the sink's name in the table.

    `access` leads to the catalog, `aws` to where the files are, if that is to be said. `bounds` are
    those of compactions. `was_dropped` says of a sink's name in the table whether that sink was
    there before this one, and is no more.
    """

    access: IcebergAccess
    aws: AwsAccess | None
    writer: str
    object_name: str
    rows: SinkColumns
    bounds: CompactionBounds = field(default_factory=CompactionBounds)
    was_dropped: Callable[[str], bool] = lambda _: False

    def ensure(self) -> None:
        """Raises SLACKWATER_SINK_LOCATION_IN_USE for another sink's table, too."""
        table = IcebergSinkTable(self, libraries.pyiceberg())
        try:
            table.ensure()
        finally:
            table.close()

    def opened(self) -> LakeTable:
        return IcebergSinkTable(self, libraries.pyiceberg())

    def misfit(self, reason: str) -> SlackwaterError:
        """SLACKWATER_COLUMN_MISMATCH."""
        return user_error("SLACKWATER_COLUMN_MISMATCH", objectName=self.rows.shown, details=reason)

    def owned(self, owner: str) -> SlackwaterError:
        """SLACKWATER_SINK_LOCATION_IN_USE."""
        return user_error("SLACKWATER_SINK_LOCATION_IN_USE", path=self.rows.shown, sink=owner)

    def lost(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_PROGRESS_LOST."""
        return progress_lost(self.object_name, self.rows.shown, reason)

    def unreachable(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_UNREACHABLE."""
        for access in (self.access, self.aws):
            reason = reason if access is None else access.scrubbed(reason)
        return unreachable(self.object_name, self.rows.shown, reason.rstrip("."))


class IcebergSinkTable:
    """One loaded version of the table: a `LakeTable`."""

    def __init__(self, target: IcebergTarget, library: Any) -> None:
        """Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SINK_UNREACHABLE."""
        self._target = target
        self._library = library
        self._table: Any = None
        self._read = Manifests(library)
        self._commits = 0
        with self._reaching():
            self._catalog = opened(library, target.access, target.aws)

    def ensure(self) -> None:
        """Makes the table, and its namespace, unless it is there; then it is checked."""
        target, rows = self._target, self._target.rows
        try:
            schema = new_schema(rows.schema, rows.key)
        except Misfit as misfit:
            raise target.misfit(str(misfit)) from None
        with self._reaching():
            for length in range(1, len(rows.identifier)):
                if not self._catalog.namespace_exists(rows.identifier[:length]):
                    self._catalog.create_namespace_if_not_exists(rows.identifier[:length])
            made = self._library.schema.Schema.model_validate(schema)
            self._table = self._catalog.create_table_if_not_exists(
                rows.identifier, made, properties=_PROPERTIES
            )
        found = self.load()
        if found is None:
            # Columns are added to what the sink writes already, and to no table of others.
            self._fit(self._schema())
        if found is None and rows.key and self._has_rows():
            raise target.misfit("MODE UPSERT begins with a table without rows")

    def load(self) -> LakeProgress | None:
        with self._reaching():
            try:
                self._table = self._catalog.load_table(self._target.rows.identifier)
            except self._library.exceptions.NoSuchTableError:
                raise self._target.lost("it is gone") from None
            metadata = self._table.metadata
        try:
            found = progress_in(self._target.writer, history_of(metadata), metadata.properties)
        except OtherSink as other:
            self._inherit(str(other))
            found = None
        except ProgressLost as lost:
            raise self._target.lost(str(lost)) from None
        if found is not None:
            # Without progress it may be another table, which is to be told in the first place.
            self._fit()
        self._commits = commits_since_compaction(metadata)
        return found

    def _inherit(self, owner: str) -> None:
        """Lets the sink begin in a table that a sink has left which was dropped, if it has no rows.

        Raises SLACKWATER_SINK_LOCATION_IN_USE otherwise.
        """
        target = self._target
        if not target.was_dropped(owner):
            raise target.owned(owner)
        with self._reaching():
            has_rows = self._has_rows()
        if has_rows:
            raise target.owned(f"{owner}, which was dropped and has left rows")

    def commit(
        self, changes: LakeChanges, progress: LakeProgress, written: Written = unheard
    ) -> None:
        if self._table is None:
            raise FatalError(
                f"{self._target.object_name} commits to a table that it has not loaded"
            )
        with self._reaching():
            self._add_columns()
            fit = self._fit()
            metadata = self._table.metadata
            files = CommitFiles(self._library, self._table, metadata.new_snapshot_id(), written)
            try:
                self._commit(files, fit, changes, recorded(self._target.writer, progress))
                files.sync(self._table.metadata_location)
            except TableChanged:
                self._take_back(files)
                raise
            deleted = 0 if changes.deleted is None else changes.deleted.num_rows
            self._commits += bool(changes.inserted.num_rows + deleted)

    def tidy(self) -> None:
        """Raises SLACKWATER_SINK_UNREACHABLE.

        What cannot be read, files of others, is left as it is.
        """
        every = self._target.rows.compact_every
        if not every or self._commits < every:
            return
        self._commits = 0
        with self._reaching():
            metadata = self._table.metadata
            files = CommitFiles(self._library, self._table, metadata.new_snapshot_id())
            try:
                self._compact(files)
                files.sync(self._table.metadata_location)
            except TableChanged:
                # Somebody else was faster: it is for a later commit to try again.
                self._take_back(files)

    def _compact(self, files: CommitFiles) -> None:
        try:
            made = self._current().compacted(files, self._target.bounds)
        except (Unreadable, Misfit, pa.ArrowException):
            files.remove()
            return
        if made.removed:
            self._put(files, made, self._summary(made, {}, is_replaced=True))

    def _take_back(self, files: CommitFiles) -> None:
        """Removes the files of a commit that was refused."""
        # What lies between may have asked twice: then the first time it was committed.
        if not self._is_there(files.snapshot_id):
            files.remove()

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _commit(
        self, files: CommitFiles, fit: Fit, changes: LakeChanges, entries: dict[str, str]
    ) -> None:
        known = self._manifests()
        new: list[Any] = []
        removed: Sequence[Listed] = ()
        # Of a table without rows none has to go.
        if changes.deleted is not None and changes.deleted.num_rows and any(map(has_files, known)):
            if self._target.rows.deletes == "rewrite":
                rewritten = self._without(files, fit, changes.deleted)
                new, removed = [*rewritten.added], rewritten.removed
            else:
                new = self._deletes(files, fit, changes.deleted, known)
        new += files.data(changes.inserted.select(fit.schema.names), fit, self._spec())
        made = Rewritten(new, removed)
        sequence = self._table.metadata.next_sequence_number()
        properties = properties_of(entries, files.snapshot_id, sequence)
        set_properties = self._library.table.update.SetPropertiesUpdate(updates=properties)
        self._put(files, made, self._summary(made, entries), set_properties)

    def _put(self, files: CommitFiles, made: Rewritten, summary: Any, *more: Any) -> None:
        """Commits a snapshot that has new files and lacks others, with other updates.

        Raises `TableChanged`.
        """
        metadata, update = self._table.metadata, self._library.table.update
        parent_id = metadata.current_snapshot_id
        known = files.without(self._manifests(), made.removed)
        manifests = [*files.manifests(made.added, made.sequences), *known]
        snapshot = self._library.table.snapshots.Snapshot(
            snapshot_id=files.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=metadata.next_sequence_number(),
            manifest_list=files.manifest_list(manifests, parent_id),
            summary=summary,
            schema_id=metadata.current_schema_id,
        )
        current = update.SetSnapshotRefUpdate(
            ref_name=MAIN, type="branch", snapshot_id=files.snapshot_id
        )
        files.sync()
        updates = (update.AddSnapshotUpdate(snapshot=snapshot), current, *more)
        self._exchange(self._requirements(), updates)

    def _manifests(self) -> list[Any]:
        current = self._table.metadata.current_snapshot()
        return [] if current is None else list(current.manifests(self._table.io))

    def _without(self, files: CommitFiles, fit: Fit, deleted: pa.Table) -> Rewritten:
        """Raises SLACKWATER_COLUMN_MISMATCH for files that cannot be written anew."""
        names = deleted.column_names
        keys = Keys(fit.ids(names), deleted.cast(fit.of(names).schema))
        try:
            return self._current().without(files, keys)
        except (Unreadable, Misfit) as unknown:
            files.remove()
            raise self._target.misfit(str(unknown)) from None

    def _current(self) -> CurrentFiles:
        """Raises `Unreadable`."""
        return CurrentFiles.of(self._table, self._read.read(self._table, self._manifests()))

    def _requirements(self) -> tuple[Any, ...]:
        """The table is as it was loaded."""
        update, metadata = self._library.table.update, self._table.metadata
        return (
            update.AssertTableUUID(uuid=metadata.table_uuid),
            update.AssertRefSnapshotId(ref=MAIN, snapshot_id=metadata.current_snapshot_id),
            update.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            update.AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )

    def _exchange(self, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> None:
        """Commits once. Raises `TableChanged`."""
        try:
            done = self._catalog.commit_table(self._table, requirements, updates)
        except self._library.exceptions.CommitFailedException as failed:
            raise TableChanged(str(failed)) from None
        except (ValueError, self._library.exceptions.RESTError) as refused:
            # A commit to another branch has taken the sequence number.
            if "sequence number" not in str(refused):
                raise
            raise TableChanged(str(refused)) from None
        self._table.metadata = done.metadata
        self._table.metadata_location = done.metadata_location

    def _deletes(
        self, files: CommitFiles, fit: Fit, deleted: pa.Table, known: Sequence[Any]
    ) -> list[Any]:
        spec = self._scope(fit.ids(deleted.column_names), known)
        return files.deletes(deleted, fit.of(deleted.column_names), spec)

    def _scope(self, ids: Sequence[int], known: Sequence[Any]) -> WrittenSpec:
        """The spec of deletes that reach all rows with values of these fields.

        Where they tell the partition of a row, it is that. Else a row may be in any of them, and
        the spec is one without partitions.
        """
        spec = self._spec()
        is_data = self._library.manifest.ManifestContent.DATA
        written = (each for each in known if each.content == is_data and has_files(each))
        specs = {each.partition_spec_id for each in written}
        if specs <= {spec.spec_id} and are_told_by(spec.columns, ids):
            return spec
        return whole_spec(self._table.metadata) or self._with_whole_spec()

    def _with_whole_spec(self) -> WrittenSpec:
        """Gives the table a spec without partitions, in a commit of its own. Raises
        `TableChanged`."""
        update, metadata = self._library.table.update, self._table.metadata
        spec_id = max(each.spec_id for each in metadata.partition_specs) + 1
        made = self._library.partitioning.PartitionSpec(spec_id=spec_id)
        self._exchange(self._requirements(), (update.AddPartitionSpecUpdate(spec=made),))
        found = whole_spec(self._table.metadata)
        if found is None:
            raise self._target.misfit("its catalog keeps no partition spec without partitions")
        return found

    def _summary(
        self, made: Rewritten, entries: dict[str, str], *, is_replaced: bool = False
    ) -> Any:
        snapshots, known = self._library.table.snapshots, self._library.manifest.DataFileContent
        collected = snapshots.SnapshotSummaryCollector()
        # Not by partitions: their names may have values that Python has no dates for.
        for file in made.added:
            collected.metrics.add_file(file)
        for each in made.removed:
            collected.metrics.remove_file(each.entry.data_file)
        contents = {each.content for each in made.added}
        has_data = known.DATA in contents
        is_append = not made.removed and contents <= {known.DATA}
        operation = snapshots.Operation.OVERWRITE if has_data else snapshots.Operation.DELETE
        parent = self._table.metadata.current_snapshot()
        found = snapshots.update_snapshot_summaries(
            summary=snapshots.Summary(
                operation=snapshots.Operation.APPEND if is_append else operation,
                **collected.build(),
                **entries,
            ),
            previous_summary=None if parent is None else parent.summary,
        )
        # That function does not take it.
        replaced = {"operation": snapshots.Operation.REPLACE}
        return found.model_copy(update=replaced) if is_replaced else found

    def _fit(self, schema: Json | None = None) -> Fit:
        """The columns as the table has them once it has all, or with that schema.

        Raises SLACKWATER_COLUMN_MISMATCH.
        """
        metadata = self._table.metadata
        version = metadata.format_version
        if version not in (1, _FORMAT):
            raise self._target.misfit(f"its format version is {version}, and not 1 or {_FORMAT}")
        if version == 1 and self._target.rows.key:
            raise self._target.misfit(f"its format version is 1, and MODE UPSERT needs {_FORMAT}")
        self._spec()
        schema = self._with_added() if schema is None else schema
        try:
            return fitted(self._target.rows.schema, schema)
        except Misfit as misfit:
            raise self._target.misfit(str(misfit)) from None

    def _schema(self) -> Json:
        """The table's schema."""
        return schema_json(self._table.metadata.schema())

    def _with_added(self) -> Json:
        """The table's schema with the columns that the relation has got."""
        metadata = self._table.metadata
        others = [schema_json(each) for each in metadata.schemas]
        columns, last_id = self._target.rows.schema, metadata.last_column_id
        try:
            return with_added(columns, self._schema(), others, last_id)
        except Misfit as misfit:
            raise self._target.misfit(str(misfit)) from None

    def _add_columns(self) -> None:
        """Gives the table the columns that it does not have, in a commit of its own: a sink that
        ends behind it finds them. Raises `TableChanged`, SLACKWATER_COLUMN_MISMATCH."""
        update, metadata = self._library.table.update, self._table.metadata
        schema = self._with_added()
        if schema == self._schema():
            return
        self._fit()
        made = self._library.schema.Schema.model_validate(schema)
        last = update.AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id)
        updates = (
            update.AddSchemaUpdate(schema_=made),
            update.SetCurrentSchemaUpdate(schema_id=-1),
        )
        self._exchange((*self._requirements(), last), updates)

    def _spec(self) -> WrittenSpec:
        """The partition spec of the table. Raises SLACKWATER_COLUMN_MISMATCH."""
        try:
            return written_spec(self._library, self._table.metadata)
        except Misfit as misfit:
            raise self._target.misfit(str(misfit)) from None

    def _is_there(self, snapshot_id: int) -> bool:
        found = self._catalog.load_table(self._target.rows.identifier)
        return found.metadata.snapshot_by_id(snapshot_id) is not None

    def _has_rows(self) -> bool:
        return any(map(has_files, self._manifests()))

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Makes SLACKWATER_SINK_UNREACHABLE of what the catalog, its database and files raise."""
        try:
            yield
        except failures(self._library) as failed:
            raise self._target.unreachable(
                first_line(str(failed) or type(failed).__name__)
            ) from None


def commits_since_compaction(metadata: Any) -> int:
    """The number of commits of a sink with changes since files were replaced last."""
    count, snapshot = 0, metadata.current_snapshot()
    while snapshot is not None and snapshot.summary is not None:
        if snapshot.summary.operation.value == "replace":
            break
        told = snapshot.summary.additional_properties
        count += SINK in told and ("added-data-files" in told or "added-delete-files" in told)
        parent_id = snapshot.parent_snapshot_id
        snapshot = None if parent_id is None else metadata.snapshot_by_id(parent_id)
    return count


def history_of(metadata: Any) -> History:
    """The snapshots of a table."""
    summaries: list[dict[str, str]] = []
    aside = {each.snapshot_id for each in metadata.snapshots}
    snapshot = current = metadata.current_snapshot()
    while snapshot is not None:
        aside.discard(snapshot.snapshot_id)
        summary = snapshot.summary
        summaries.append({} if summary is None else dict(summary.additional_properties))
        parent_id = snapshot.parent_snapshot_id
        snapshot = None if parent_id is None else metadata.snapshot_by_id(parent_id)
    sequence = 0 if current is None else current.sequence_number or 0
    return History(tuple(summaries), sequence, frozenset(aside))
