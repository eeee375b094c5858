"""Sources and sinks as objects: their definition, and the ingestion that fills a source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions import Context, Session
from slackwater.adapter.sinks import sink_config
from slackwater.adapter.source_states import SourceStates
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.sql import statements as st
from slackwater.sql import variables
from slackwater.sql.canonical import to_sql
from slackwater.sql.names import QualifiedName
from slackwater.storage.discovery import local_path
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig, FilesIngestion
from slackwater.storage.generators import GeneratorConfig, GeneratorIngestion, exports
from slackwater.storage.infer import infer
from slackwater.storage.ingestion import Ingestion, IngestionStep, Resumed
from slackwater.storage.sink_files import SinkConfig, check_config, claim_location

DEFAULT_INTERVAL_MS = 1000
DAY_MS = 24 * 3600 * 1000
_SINGLE = ("COUNTER", "CLOCK")


class Sources:
    """Drafts catalog items of sources and sinks, and runs ingestions."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._states = SourceStates(env.persist, env.committer)

    def draft(
        self, schema: str, name: str, context: Context, statement: st.CreateSource
    ) -> list[CatalogItem]:
        """The items of a new source: itself, and one for each of its tables.

        Raises SLACKWATER_SOURCE_FILES_NOT_FOUND and errors of the options.
        """
        if statement.expose_progress is not None:
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature="EXPOSE PROGRESS",
                advice="mz_internal.mz_source_statistics shows how far a source is.",
            )
        if isinstance(statement.connector, st.LoadGenerator):
            return self._generator(schema, name, context, statement, statement.connector)
        return [self._files(schema, name, context, statement, statement.connector)]

    def draft_sink(
        self,
        schema: str,
        name: str,
        context: Context,
        statement: st.CreateSink,
        written: CatalogItem,
    ) -> CatalogItem:
        """The item of a new sink over `written`.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_SINK_KEY, SLACKWATER_SINK_LOCATION_IN_USE,
        SLACKWATER_SINK_LOCATION_UNWRITABLE.
        """
        if written.shard_id is None or written.desc is None:
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=written.full_name,
                actualKind=written.kind.spoken,
                expectedKind="table, source or materialized view",
            )
        config = {
            "path": local_path(statement.connector.path, os.getcwd()),
            "format": statement.connector.format,
            "envelope": statement.envelope.kind,
            "key": list(statement.envelope.key),
            "snapshot": statement.snapshot,
        }
        item = CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.SINK,
            schema_name=schema,
            name=name,
            create_sql=to_sql(_named_sink(statement, schema, name, written)),
            depends_on=(written.id,),
            owner=context.user,
            created_ms=self._env.now(),
            details={"config": config, "as_of": int(self._env.oracle.read_ts())},
        )
        settings: SinkConfig = sink_config(item)
        check_config(settings, written.desc, item.full_name)
        claim_location(settings, item.id)
        return item

    def start(self, item: CatalogItem) -> None:
        """Starts the ingestion of a source where its durable state says."""
        interval = int(item.details.get("interval_ms") or DEFAULT_INTERVAL_MS)
        self._env.ingestion.add(item.id, lambda: self._resume(item), interval)

    def wait_for_snapshot(self, session: Session, item: CatalogItem) -> None:
        """Returns when what the source found first can be read, so that no read misses it."""
        timeout_ms = variables.milliseconds(session.variable("statement_timeout")) or DAY_MS
        if not self._env.ingestion.wait_for(
            item.id, lambda status: status.status != "starting", timeout_ms / 1000
        ):
            session.notify(f"{item.full_name} is still reading what it found first.")

    def stop(self, item: CatalogItem) -> None:
        self._env.ingestion.remove(item.id)

    def commit(self, source_id: GlobalId, steps: int, step: IngestionStep) -> None:
        """Commits the step of an ingestion, the one after `steps` others, at one time.

        Raises `StepSuperseded`. A step of a source that was dropped has no effect.
        """
        current = self._env.state
        item = current.items.get(source_id)
        if item is None:
            return
        appends: dict[int, pa.Table] = {}
        for export, rows in step.updates.items():
            for target in _targets(current, item, export):
                if target.shard_id is not None:
                    appends[target.shard_id] = rows
        self._states.commit(source_id, steps, appends, step.state)

    def forget(self, conn: Connection, source_id: GlobalId) -> None:
        """Removes the durable state of a dropped source."""
        self._states.forget(conn, source_id)

    def _resume(self, item: CatalogItem) -> Resumed:
        stored = self._states.stored(item.id)
        if stored is None:
            return Resumed(self._ingestion(item, None))
        return Resumed(self._ingestion(item, stored.state), stored.steps, stored.state)

    def _ingestion(self, item: CatalogItem, state: str | None) -> Ingestion:
        config: Mapping[str, Any] = item.details["config"]
        if item.details["connector"] == "load-generator":
            return GeneratorIngestion(GeneratorConfig(**config), state)
        if item.desc is None:
            raise AssertionError(f"the source {item.id} has no columns")
        return FilesIngestion(_files_config(config), item.name, item.desc, state)

    def _generator(
        self,
        schema: str,
        name: str,
        context: Context,
        statement: st.CreateSource,
        connector: st.LoadGenerator,
    ) -> list[CatalogItem]:
        if connector.as_of_ms is not None:
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature="The option AS OF of a load generator",
                advice="Leave it out: the generator begins when it is created.",
            )
        config = GeneratorConfig(
            kind=connector.kind,
            tick_interval_ms=connector.tick_interval_ms or DEFAULT_INTERVAL_MS,
            seed=connector.seed or 0,
            up_to=connector.up_to_ms,
            max_cardinality=connector.max_cardinality,
        )
        tables = exports(connector.kind)
        if connector.kind not in _SINGLE and not connector.for_all_tables:
            raise user_error(
                "SLACKWATER_SYNTAX_ERROR",
                statement="CREATE SOURCE",
                found="the end",
                expected=f"FOR ALL TABLES, because {connector.kind} has several tables",
            )
        details = {
            "connector": "load-generator",
            "config": asdict(config),
            "interval_ms": config.tick_interval_ms,
            "retain_history_ms": statement.retain_history_ms,
        }
        own_desc = next(iter(tables.values())) if connector.kind in _SINGLE else None
        source = self._item(schema, name, context, statement, own_desc, details)
        if connector.kind in _SINGLE:
            return [source]
        children = [
            self._child(source, export, desc, statement.retain_history_ms)
            for export, desc in tables.items()
        ]
        return [source, *children]

    def _child(
        self, source: CatalogItem, export: str, desc: RelationDesc, retain_ms: int | None
    ) -> CatalogItem:
        return CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.SOURCE,
            schema_name=source.schema_name,
            name=export,
            create_sql=source.create_sql,
            desc=desc,
            owner=source.owner,
            created_ms=source.created_ms,
            details={"parent": source.id, "export": export, "retain_history_ms": retain_ms},
        )

    def _files(
        self,
        schema: str,
        name: str,
        context: Context,
        statement: st.CreateSource,
        connector: st.FilesSource,
    ) -> CatalogItem:
        settings: dict[str, Any] = {
            "path": local_path(connector.path, os.getcwd()),
            "kind": connector.format,
            "header": bool(connector.header),
            "delimiter": connector.delimiter or ",",
            "null_text": connector.null_text or "",
            "pattern": connector.pattern,
            "on_error": connector.on_error,
        }
        full = f"slackwater.{schema}.{name}"
        if statement.columns is None:
            desc = infer(_files_config(settings), full)
        else:
            desc = self._declared(statement.columns.text)
        desc.arrow_schema()
        details = {
            "connector": "files",
            "config": settings,
            "interval_ms": statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS,
            "retain_history_ms": statement.retain_history_ms,
        }
        return self._item(schema, name, context, statement, desc, details)

    def _declared(self, columns: str) -> RelationDesc:
        """The columns of a declaration, as Spark's parser understands them."""
        escaped = columns.replace("\\", "\\\\").replace("'", "\\'")
        analysis = self._env.engine.analyze(
            f"SELECT from_json('{{}}', '{escaped}') AS row", "slackwater", ("default",)
        )
        return RelationDesc.from_json(analysis.desc.columns[0].type_json)

    def _item(
        self,
        schema: str,
        name: str,
        context: Context,
        statement: st.CreateSource,
        desc: RelationDesc | None,
        details: Mapping[str, Any],
    ) -> CatalogItem:
        return CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.SOURCE,
            schema_name=schema,
            name=name,
            create_sql=to_sql(_named_source(statement, schema, name)),
            desc=desc,
            owner=context.user,
            created_ms=self._env.now(),
            details=details,
        )


def _targets(state: CatalogState, source: CatalogItem, export: str) -> list[CatalogItem]:
    """The collections that an export of the source fills."""
    if source.shard_id is not None:
        return [source]
    return [
        item
        for item in state.items.values()
        if item.parent == source.id and item.details.get("export") == export
    ]


def _files_config(settings: Mapping[str, Any]) -> FilesConfig:
    return FilesConfig(
        path=settings["path"],
        format=Format(
            kind=settings["kind"],
            header=settings["header"],
            delimiter=settings["delimiter"],
            null_text=settings["null_text"],
        ),
        pattern=settings["pattern"],
        on_error=settings["on_error"],
    )


def _full(schema: str, name: str) -> QualifiedName:
    return QualifiedName(("slackwater", schema, name))


def _named_source(statement: st.CreateSource, schema: str, name: str) -> st.CreateSource:
    return replace(statement, name=_full(schema, name), if_not_exists=False)


def _named_sink(
    statement: st.CreateSink, schema: str, name: str, written: CatalogItem
) -> st.CreateSink:
    return replace(
        statement,
        name=_full(schema, name),
        from_name=_full(written.schema_name, written.name),
        if_not_exists=False,
    )
