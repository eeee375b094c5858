"""Tables of Iceberg for sinks, by pyiceberg's catalogs and a commit of our own.

pyiceberg tries a commit again by itself when another writer was first, and then a commit that is
out of date is let through. So a commit here has the requirement that the table is as it was loaded,
and who lost tells it.

Source: docs/decisions 0077.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy.engine
import sqlalchemy.exc

from slackwater.adapter.external import libraries
from slackwater.adapter.external.iceberg_files import CommitFiles
from slackwater.repr.errors import FatalError, SlackwaterError, first_line, user_error
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.progress import (
    SINK,
    History,
    OtherSink,
    ProgressLost,
    progress_in,
    properties_of,
    recorded,
)
from slackwater.storage.iceberg.schema import Fit, Misfit, fitted, new_schema
from slackwater.storage.lake.table import LakeChanges, LakeProgress, TableChanged

MAIN = "main"
_FORMAT = 2
_PROPERTIES = {
    "format-version": str(_FORMAT),
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of tables that sinks make. Each commit writes the table's metadata anew: without the
second one, all of these files would stay."""
NEW_CATALOG = "default"
"""The name of a catalog in a database that names none: the one that pyiceberg takes."""


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names of a sink's table. `sink` and `shown` are those of the sink and of the table in
    messages, `recorded` is what the table has as the sink's name."""

    sink: str
    shown: str
    recorded: str


class IcebergTable:
    """A table of a catalog for one sink, as `LakeTable` promises.

    `identifier` has the parts of the namespace, and the table's name. `columns` are those of the
    table's rows, in Arrow's types.
    """

    def __init__(
        self,
        access: IcebergAccess,
        aws: AwsAccess | None,
        identifier: Sequence[str],
        names: TableNames,
        columns: pa.Schema,
    ) -> None:
        """Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SINK_UNREACHABLE."""
        self._library = libraries.pyiceberg()
        self._hidden = (access, aws)
        self.identifier = tuple(identifier)
        self._names = names
        self._columns = columns
        self._table: Any = None
        with self._reaching():
            self._catalog = opened(self._library, access, aws)

    def make(self, key: Sequence[str]) -> None:
        """Makes the table, and its namespace, unless it is there; then it is checked.

        Raises SLACKWATER_COLUMN_MISMATCH for a table that the rows do not fit,
        SLACKWATER_SINK_LOCATION_IN_USE for another sink's, SLACKWATER_UNSUPPORTED_TYPE, and
        SLACKWATER_SINK_UNREACHABLE.
        """
        schema = new_schema(self._columns, key)
        with self._reaching():
            for length in range(1, len(self.identifier)):
                self._catalog.create_namespace_if_not_exists(self.identifier[:length])
            made = self._library.schema.Schema.model_validate(schema)
            self._table = self._catalog.create_table_if_not_exists(
                self.identifier, made, properties=_PROPERTIES
            )
            self._fit()
            owner = self._table.metadata.properties.get(SINK)
        if owner is not None:
            raise self._owned(owner)

    def load(self) -> LakeProgress | None:
        with self._reaching():
            try:
                self._table = self._catalog.load_table(self.identifier)
            except self._library.exceptions.NoSuchTableError:
                raise self._lost("it is gone") from None
            metadata = self._table.metadata
        try:
            return progress_in(self._names.recorded, history_of(metadata), metadata.properties)
        except OtherSink as other:
            raise self._owned(str(other)) from None
        except ProgressLost as lost:
            raise self._lost(str(lost)) from None

    def commit(self, changes: LakeChanges, progress: LakeProgress) -> None:
        if self._table is None:
            raise FatalError(f"{self._names.sink} commits to a table that it has not loaded")
        with self._reaching():
            fit = self._fit()
            metadata = self._table.metadata
            files = CommitFiles(self._library, self._table, metadata.new_snapshot_id())
            try:
                self._commit(files, fit, changes, recorded(self._names.recorded, progress))
            except TableChanged:
                files.remove()
                raise

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _commit(
        self, files: CommitFiles, fit: Fit, changes: LakeChanges, entries: dict[str, str]
    ) -> None:
        snapshots, update = self._library.table.snapshots, self._library.table.update
        metadata, io = self._table.metadata, self._table.io
        data = files.data(changes.inserted.select(fit.schema.names), fit)
        deletes = [] if changes.deleted is None else self._deletes(files, fit, changes.deleted)
        parent = metadata.current_snapshot()
        known = [] if parent is None else parent.manifests(io)
        parent_id = None if parent is None else parent.snapshot_id
        path = files.manifest_list([*files.manifests(data, deletes), *known], parent_id)
        snapshot = snapshots.Snapshot(
            snapshot_id=files.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=metadata.next_sequence_number(),
            manifest_list=path,
            summary=self._summary(parent, data, deletes, entries),
            schema_id=metadata.current_schema_id,
        )
        requirements = (
            update.AssertTableUUID(uuid=metadata.table_uuid),
            update.AssertRefSnapshotId(ref=MAIN, snapshot_id=parent_id),
            update.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            update.AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )
        updates = (
            update.AddSnapshotUpdate(snapshot=snapshot),
            update.SetSnapshotRefUpdate(
                ref_name=MAIN,
                type=self._library.table.refs.SnapshotRefType.BRANCH,
                snapshot_id=snapshot.snapshot_id,
            ),
            update.SetPropertiesUpdate(
                updates=properties_of(entries, snapshot.snapshot_id, snapshot.sequence_number)
            ),
        )
        self._exchange(requirements, updates)

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

    def _deletes(self, files: CommitFiles, fit: Fit, deleted: pa.Table) -> list[Any]:
        if self._table.metadata.current_snapshot() is None:
            return []
        return files.deletes(deleted, fit.of(deleted.column_names))

    def _summary(
        self, parent: Any, data: Sequence[Any], deletes: Sequence[Any], entries: dict[str, str]
    ) -> Any:
        snapshots = self._library.table.snapshots
        collected = snapshots.SnapshotSummaryCollector()
        for each in (*data, *deletes):
            collected.add_file(each, schema=self._table.metadata.schema())
        operation = snapshots.Operation.APPEND
        if deletes:
            operation = snapshots.Operation.OVERWRITE if data else snapshots.Operation.DELETE
        return snapshots.update_snapshot_summaries(
            summary=snapshots.Summary(operation=operation, **collected.build(), **entries),
            previous_summary=None if parent is None else parent.summary,
        )

    def _fit(self) -> Fit:
        """The columns as the table has them now. Raises SLACKWATER_COLUMN_MISMATCH."""
        metadata = self._table.metadata
        if metadata.format_version != _FORMAT:
            raise self._misfit(
                f"its format version is {metadata.format_version}, and not {_FORMAT}"
            )
        if not metadata.spec().is_unpartitioned():
            raise self._misfit("it is partitioned")
        try:
            return fitted(self._columns, json.loads(metadata.schema().model_dump_json()))
        except Misfit as misfit:
            raise self._misfit(str(misfit)) from None

    def _misfit(self, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_COLUMN_MISMATCH", objectName=self._names.shown, details=reason
        )

    def _owned(self, owner: str) -> SlackwaterError:
        return user_error("SLACKWATER_SINK_LOCATION_IN_USE", path=self._names.shown, sink=owner)

    def _lost(self, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_SINK_PROGRESS_LOST",
            objectName=self._names.sink,
            place=self._names.shown,
            reason=reason,
        )

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Makes SLACKWATER_SINK_UNREACHABLE of what the catalog, its database and files raise."""
        try:
            yield
        except failures(self._library) as failed:
            reason = first_line(str(failed) or type(failed).__name__)
            raise user_error(
                "SLACKWATER_SINK_UNREACHABLE",
                objectName=self._names.sink,
                place=self._names.shown,
                reason=hidden(reason, self._hidden).rstrip("."),
            ) from None


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


def opened(library: Any, access: IcebergAccess, aws: AwsAccess | None) -> Any:
    """The catalog to which a connection leads. Raises what `failures` lists."""
    name = access.catalog_name or NEW_CATALOG
    return library.catalog.load_catalog(name, **catalog_properties(access, aws))


def catalog_properties(access: IcebergAccess, aws: AwsAccess | None) -> dict[str, str]:
    """The settings of pyiceberg for a connection, and for one to where the files are."""
    found: dict[str, str | None] = {"type": access.catalog_type, "warehouse": access.warehouse}
    if access.catalog_type == "sql":
        found["uri"] = database_url(access.url, access.credential)
    else:
        found |= {
            "uri": access.url,
            "credential": access.credential,
            "token": access.token,
            "scope": access.scope,
        }
    if aws is not None:
        found |= {
            "s3.region": aws.region,
            "s3.endpoint": aws.endpoint,
            "s3.access-key-id": aws.access_key_id,
            "s3.secret-access-key": aws.secret_access_key,
            "s3.session-token": aws.session_token,
            "s3.role-arn": aws.role,
            "s3.role-session-name": aws.role_session,
        }
    return {name: value for name, value in found.items() if value is not None}


def database_url(url: str, password: str | None) -> str:
    """The URL of SQLAlchemy's with the password, and with the driver that is an extra of ours.

    Raises SLACKWATER_CONNECTOR_MISSING.
    """
    made = sqlalchemy.engine.make_url(url)
    if made.drivername == "postgresql":
        libraries.psycopg()
        made = made.set(drivername="postgresql+psycopg")
    if password is not None:
        made = made.set(password=password)
    return made.render_as_string(hide_password=False)


def failures(library: Any) -> tuple[type[Exception], ...]:
    """What a catalog, its database and its files raise when they do not do what they are asked."""
    known = library.exceptions
    return (
        OSError,
        pa.ArrowException,
        sqlalchemy.exc.SQLAlchemyError,
        known.RESTError,
        known.CommitFailedException,
        known.CommitStateUnknownException,
        known.NoSuchTableError,
        known.NoSuchNamespaceError,
        known.NamespaceAlreadyExistsError,
        known.TableAlreadyExistsError,
    )


def hidden(reason: str, accesses: Sequence[IcebergAccess | AwsAccess | None]) -> str:
    """The reason without values of secrets."""
    for access in accesses:
        if access is not None:
            reason = access.scrubbed(reason)
    return reason
