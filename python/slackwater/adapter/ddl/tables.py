"""CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import TableDetails, ViewDetails, retaining
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import AlterItem
from slackwater.adapter.catalog.render import create_table_sql
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.columns import (
    refuse_new_column,
    refuse_nullability,
    with_column,
    with_comment,
    with_nullability,
)
from slackwater.adapter.protocol import (
    AddColumn,
    AlterTable,
    NewTable,
    RemoveProperty,
    SetColumnComment,
    SetComment,
    SetNullability,
    SetProperty,
    TableChange,
    UnsupportedChange,
    schema_of,
)
from slackwater.adapter.sessions.sessions import Execution
from slackwater.compute.engine import Engine
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.durations import parse_duration
from slackwater.repr.errors import invalid_option, unsupported
from slackwater.repr.relation import RelationDesc

RETAIN_HISTORY = "retain_history"
_SPARK_PROPERTIES = frozenset({"owner", "comment", "external", "is_managed_location"})


class Tables:
    """Definitions of tables."""

    def __init__(self, changes: Changes, engine: Engine) -> None:
        self._changes = changes
        self._engine = engine

    def create_table(self, execution: Execution, asked: NewTable) -> CatalogItem:
        """A new empty table, readable from now on.

        Raises SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_INVALID_OPTION, names that are taken.
        """
        item = self.plan_table(execution.user, asked)
        with self._changes.defining(execution.cancellation):
            self._changes.commit(self._changes.with_tables_shards([item]), execution.user)
            return self._changes.state.item(item.id)

    def plan_table(self, user: str, asked: NewTable) -> CatalogItem:
        """The object of a new table, without its shard.

        Raises SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_INVALID_OPTION, SLACKWATER_UNSUPPORTED.
        """
        desc = asked.schema
        desc.arrow_schema()
        details = _table_details(asked.properties)
        schema = schema_of(asked.namespace)
        planned = self._changes.new_item(ItemKind.TABLE, schema, asked.name, user)
        return replace(
            planned,
            create_sql=create_table_sql(
                planned.full_name,
                desc,
                details.retain_history_ms,
                asked.comment,
                details.properties,
            ),
            desc=desc,
            comment=asked.comment,
            details=details,
        )

    def redefined(self, existing: CatalogItem, planned: CatalogItem) -> AlterItem | None:
        """The alteration of a table that stays when one with equal columns replaces it.

        Properties and comment are the replacement's. RETAIN HISTORY stays unless the replacement
        has one: history that is gone does not come back. None: nothing changes.
        """
        before, after = existing.of(TableDetails), planned.of(TableDetails)
        retain_ms = after.retain_history_ms
        if retain_ms is None:
            retain_ms = before.retain_history_ms
        details = replace(after, retain_history_ms=retain_ms)
        if existing.details == details and existing.comment == planned.comment:
            return None
        desc = existing.desc or RelationDesc(())
        return AlterItem(
            existing.id,
            details=details,
            comment=planned.comment or "",
            create_sql=create_table_sql(
                existing.full_name,
                desc,
                retain_ms,
                planned.comment,
                details.properties,
            ),
        )

    def alter_table(self, execution: Execution, asked: AlterTable) -> CatalogItem:
        """Adds columns, drops NOT NULL, changes properties and the comment.

        Raises SLACKWATER_UNSUPPORTED for other changes, and what `slackwater.adapter.ddl.columns`
        raises.
        """
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.get(schema_of(asked.namespace), asked.name)
            properties, retain_ms = dict(item.properties), item.retain_history_ms
            comment, desc = item.comment, item.desc
            for change in asked.changes:
                match change:
                    case AddColumn() if desc is not None:
                        refuse_new_column(item, self._changes.state)
                        desc = with_column(item, desc, change)
                    case SetNullability() if desc is not None:
                        desc = with_nullability(item, desc, change)
                        refuse_nullability(item, self._changes.state)
                    case SetColumnComment(path, text):
                        # Several columns can be described by one statement.
                        described = item if desc is None else replace(item, desc=desc)
                        desc = with_comment(described, path, text)
                    case SetProperty(key, value):
                        if key == RETAIN_HISTORY:
                            retain_ms = _retain(value)
                        elif key == "comment":
                            comment = value
                        else:
                            _refuse_property(key, item)
                            properties[key] = value
                    case RemoveProperty(key):
                        if key == RETAIN_HISTORY:
                            retain_ms = None
                        properties.pop(key, None)
                    case SetComment(text):
                        comment = text
                    case _:
                        raise _unsupported_alter(change, item)
            details = retaining(item.details, retain_ms)
            if isinstance(details, TableDetails | ViewDetails):
                details = replace(details, properties=properties)
            sql = item.create_sql
            if item.is_writable:
                sql = create_table_sql(item.full_name, desc, retain_ms, comment, properties)
            altered = AlterItem(item.id, details=details, comment=comment, create_sql=sql)
            self._changes.commit(self._changes.with_columns(item, desc, altered), execution.user)
            return self._changes.state.item(item.id)

    def create_table_with_options(self, context: Context, statement: st.CreateTable) -> None:
        """CREATE TABLE ... WITH: Spark runs the statement, with the options as properties."""
        body = statement.body.text
        if statement.retain_history_ms is not None:
            body += f" TBLPROPERTIES ('{RETAIN_HISTORY}' = '{statement.retain_history_ms} ms')"
        spark = replace(statement, body=st.TextSlice(body), retain_history_ms=None)
        engine = self._engine.under(context.settings)
        engine.collect(spark.spark_text, context.catalog, context.namespace)


def _table_details(properties: Mapping[str, str]) -> TableDetails:
    retain_ms = None
    kept = {}
    for key, value in properties.items():
        if key == RETAIN_HISTORY:
            retain_ms = _retain(value)
        elif key == "provider":
            if value.lower() != "slackwater":
                raise unsupported(
                    f"CREATE TABLE ... USING {value}",
                    advice="Leave USING out: tables of slackwater are collections.",
                )
        elif key == "location":
            raise unsupported(
                "CREATE TABLE ... LOCATION",
                advice="Leave it out: the environment keeps the files of its tables.",
            )
        elif key not in _SPARK_PROPERTIES:
            kept[key] = value
    return TableDetails(retain_ms, kept)


def _retain(value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError as reason:
        raise invalid_option(RETAIN_HISTORY, "CREATE TABLE", repr(value), str(reason)) from None


_DISPLAY_NAMES = {
    "AddColumn": "a column that is not the last one",
    "UpdateColumnType": "another type of a column",
    "UpdateColumnPosition": "another place of a column",
    "UpdateColumnDefaultValue": "another DEFAULT of a column",
    "ClusterBy": "CLUSTER BY",
}
"""Words for unsupported changes, by the names that Spark has for them."""


def _refuse_property(key: str, item: CatalogItem) -> None:
    """Refuses a property of anything but a table or view: SHOW CREATE could not repeat it."""
    if not item.is_writable and item.kind is not ItemKind.VIEW:
        raise unsupported(
            f"The property {key} of the {item.kind.display_name} {item.full_name}",
            advice=f"Of properties it has {RETAIN_HISTORY} only; COMMENT describes it.",
        )


def _unsupported_alter(change: TableChange, item: CatalogItem) -> Exception:
    match change:
        case UnsupportedChange("set_location"):
            return unsupported(
                f"SET LOCATION for {item.full_name}",
                advice="The environment keeps the files of its tables.",
            )
        case UnsupportedChange(kind, spark_name):
            display_name = _DISPLAY_NAMES.get(spark_name or "", kind.replace("_", " "))
        case _:
            display_name = "other columns"
    return unsupported(
        f"ALTER TABLE with {display_name} (on {item.full_name})",
        advice="Create a new table with the wanted columns and INSERT INTO it.",
    )
