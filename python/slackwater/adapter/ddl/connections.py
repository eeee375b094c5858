"""CREATE CONNECTION, ALTER CONNECTION ... SET and RESET."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ConnectionDetails, ConnectionSetting
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CreateItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser.connection_options import check, refuse_unknown
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionOption,
    CreateConnection,
)
from slackwater.planner.parser.names import QualifiedName

_ALTER = "ALTER CONNECTION"


class ConnectionDefinitions:
    """Definitions of connections.

    They keep the ids of their secrets and no text, since secrets can be renamed.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def create_connection(
        self, execution: Execution, named: tuple[str, str], statement: CreateConnection
    ) -> None:
        settings = self._settings(execution.context, statement.options)
        details = ConnectionDetails(statement.kind, settings)
        blank = self._changes.new_item(ItemKind.CONNECTION, *named, execution.user)
        item = replace(blank, details=details, depends_on=details.secrets)
        with self._changes.defining(execution.cancellation):
            self._changes.commit([CreateItem(item)], execution.user)

    def alter_connection(self, execution: Execution, statement: AlterConnection) -> None:
        named = self._changes.existing_name(
            execution, ItemKind.CONNECTION, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        given = self._settings(execution.context, statement.given)
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.get(*named, ItemKind.CONNECTION)
            details = _altered(item.of(ConnectionDetails), given, statement.reset)
            altered = AlterItem(item.id, details=details, depends_on=details.secrets)
            self._changes.commit([altered], execution.user)

    def _settings(
        self, context: Context, options: Iterable[ConnectionOption]
    ) -> tuple[ConnectionSetting, ...]:
        """The options with the ids of their secrets. Raises SLACKWATER_UNKNOWN_OBJECT."""

        def setting(option: ConnectionOption) -> ConnectionSetting:
            if not isinstance(option.value, QualifiedName):
                return ConnectionSetting(option.name, option.value)
            named = context.resolve(option.value)
            secret = self._changes.state.get(*named, ItemKind.SECRET).id
            return ConnectionSetting(option.name, secret=secret)

        return tuple(map(setting, options))


def _altered(
    details: ConnectionDetails, given: Iterable[ConnectionSetting], reset: Iterable[str]
) -> ConnectionDetails:
    """The details with other options. Raises what `check` raises."""
    settings = {each.name: each for each in details.settings}
    settings |= {each.name: each for each in given}
    for name in reset:
        settings.pop(name, None)
    refuse_unknown(details.kind, reset, _ALTER)
    check(details.kind, {each.name: each.texts or None for each in settings.values()}, _ALTER)
    return replace(details, settings=tuple(settings.values()), version=details.version + 1)
