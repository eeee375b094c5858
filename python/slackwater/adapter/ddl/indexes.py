"""Definitions of indexes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import IndexDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.naming import find_item
from slackwater.adapter.catalog.ops import CreateItem
from slackwater.adapter.catalog.replaced import refuse_replacement
from slackwater.adapter.catalog.settings import context_of, refuse_other_reading
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_indexes import Indexes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.compute.engine import Analysis
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.plan.functions import advice_for
from slackwater.repr.errors import unsupported, user_error
from slackwater.repr.ids import GlobalId, is_system
from slackwater.repr.relation import quote_identifier

INDEXED = frozenset({ItemKind.TABLE, ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW, ItemKind.VIEW})
"""The kinds of relations whose rows an index can keep; those of a plain view it computes."""

_NAMED = re.compile(r"`?(\w+)`?")
_UNEQUAL = re.compile(r"map<|variant|geography|geometry|calendarinterval", re.IGNORECASE)
"""Types of values that cannot be compared."""


class IndexDefinitions:
    """Definitions of indexes."""

    def __init__(self, changes: Changes, indexes: Indexes) -> None:
        self._changes = changes
        self._indexes = indexes

    def create_index(
        self,
        execution: Execution,
        statement: st.CreateIndex,
    ) -> None:
        """Creates an index. It returns when the index is durable; it is hydrated after that.

        Raises Spark's errors of the keys, SLACKWATER_WRONG_KIND, SLACKWATER_UNSUPPORTED, the errors
        of names that are taken, and of a plain view SLACKWATER_UNMATERIALIZABLE_FUNCTION.
        """
        context = context_of(execution.context, statement.under)
        cluster = self._changes.cluster_for(execution, statement.cluster)
        on = find_item(self._changes.state, statement.on, context)
        _refuse_kind(on)
        refuse_replacement(on)
        keys = _keys(statement, on)
        name = self._name(execution, statement, on, keys)
        if name is None:
            return
        refuse_other_reading(f"the index {name}", context.settings)
        analysis = self._indexes.analyzed(on, keys, context)
        full = f"{on.schema_name}.{name}"
        if on.kind is ItemKind.VIEW:
            _refuse_view(full, analysis)
            self._indexes.refuse_other_settings(f"The index {full}", analysis, context)
        _refuse_unmaintainable(full, on, analysis, len(keys))
        item = replace(self._item(context, statement, on, name, keys), cluster=cluster.id)
        try:
            self._indexes.plan_ahead(item)
            with self._changes.defining(execution.cancellation):
                self._changes.commit([CreateItem(item)], execution.user)
        finally:
            self._indexes.forget(item)
        self._changes.tell_if_idle(execution, item)

    def _item(
        self,
        context: Context,
        statement: st.CreateIndex,
        on: CatalogItem,
        name: str,
        keys: tuple[str, ...],
    ) -> CatalogItem:
        made = replace(
            statement,
            name=QualifiedName((CATALOG_NAME, on.schema_name, name)),
            on=QualifiedName((CATALOG_NAME, on.schema_name, on.name)),
            if_not_exists=False,
        )
        return replace(
            self._changes.new_item(ItemKind.INDEX, on.schema_name, name, context.user),
            create_sql=to_sql(made),
            depends_on=(on.id,),
            details=IndexDetails(keys, context.settings, statement.retain_history_ms),
        )

    def _name(
        self,
        execution: Execution,
        statement: st.CreateIndex,
        on: CatalogItem,
        keys: tuple[str, ...],
    ) -> str | None:
        """The name of the index, which is in the schema of its relation; None: it exists."""
        if statement.name is None:
            parts = ["primary"] if statement.keys is None else [_part(key) for key in keys]
            return _free(self._changes.state, on.schema_name, "_".join([on.name, *parts, "idx"]))
        if len(statement.name.parts) == 1:
            full = QualifiedName((CATALOG_NAME, on.schema_name, statement.name.last))
        else:
            full = statement.name
        schema, _ = execution.context.resolve(full)
        if schema.casefold() != on.schema_name.casefold():
            raise unsupported(
                f"The index {full} in another schema than {on.full_name}",
                advice="An index is in the schema of its relation: leave its schema out.",
            )
        named = self._changes.new_name(execution, full, if_not_exists=statement.if_not_exists)
        return None if named is None else named[1]


def _keys(statement: st.CreateIndex, on: CatalogItem) -> tuple[str, ...]:
    """The keys as text: without any, all columns that can be compared."""
    if statement.keys is not None:
        return tuple(key.text for key in statement.keys)
    columns = () if on.desc is None else on.desc.columns
    return tuple(quote_identifier(c.name) for c in columns if not _UNEQUAL.search(c.sql_type))


def _part(key: str) -> str:
    """The part of an index's name that stands for a key."""
    column = _NAMED.fullmatch(key.strip())
    return "expr" if column is None else column.group(1)


def _free(state: CatalogState, schema: str, name: str) -> str:
    """The name, with a number where others have it already."""
    numbered = (f"{name}{number}" for number in count(1))
    taken = state.find(schema, name) is not None
    return next(n for n in numbered if state.find(schema, n) is None) if taken else name


def _refuse_kind(on: CatalogItem) -> None:
    if on.kind not in INDEXED or (on.shard_id is None and on.kind is not ItemKind.VIEW):
        raise on.wrong_kind("table, source, view or materialized view")


def _refuse_view(name: str, analysis: Analysis) -> None:
    """Refuses a view whose rows change with other things than its relations and the time."""
    system = any(is_system(GlobalId(each)) for each in analysis.relations)
    if analysis.nondeterministic:
        function = analysis.nondeterministic[0]
        raise user_error(
            "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
            objectName=f"The index {name}",
            functionName=function,
            advice=advice_for(function),
        )
    reason = None
    if system:
        reason = "a view over a system relation"
    elif analysis.timed:
        reason = f"a view over {analysis.timed[0]} at a time of its own"
    elif not analysis.relations:
        reason = "a view that reads no relation"
    if reason is not None:
        raise unsupported(
            f"The index {name} on {reason}",
            advice="An index follows the relations that its view reads: query the view itself.",
        )


def _refuse_unmaintainable(name: str, on: CatalogItem, analysis: Analysis, keys: int) -> None:
    """Refuses keys that are not functions of a row, or that cannot be compared."""
    reason = None
    is_view = on.kind is ItemKind.VIEW
    if analysis.foreign or set(analysis.named) != {on.id}:
        reason = "a subquery"
    elif analysis.uses_mz_now and not is_view:
        reason = "mz_now()"
    elif analysis.functions:
        reason = f"the function {analysis.functions[0]['name']}"
    elif analysis.nondeterministic:
        reason = f"{analysis.nondeterministic[0]}, which is not the same each time,"
    else:
        types = [column.sql_type for column in analysis.desc.columns[-keys:]]
        reason = next((f"a key of the type {t}" for t in types if _UNEQUAL.search(t)), None)
    if reason is not None:
        raise unsupported(
            f"The index {name} with {reason}",
            advice="Use columns, or expressions of Spark's own functions over columns, as keys.",
        )
