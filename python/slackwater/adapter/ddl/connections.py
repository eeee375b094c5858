"""CREATE CONNECTION, ALTER CONNECTION ... SET and RESET, VALIDATE CONNECTION."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ConnectionDetails, ConnectionSetting
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CreateItem, apply
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.external.trials.validation import Access
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.connections import Connections
from slackwater.planner.parser.connection_options import VALIDATED, check, refuse_unknown
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionOption,
    CreateConnection,
    ValidateConnection,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import user_error

Validate = Callable[[str, Access], None]
"""Tries the connection of that name. Raises SLACKWATER_CONNECTION_FAILED."""

_ALTER = "ALTER CONNECTION"


class ConnectionDefinitions:
    """Definitions of connections.

    They keep the ids of their secrets and no text, since secrets can be renamed. A connection is
    tried before the lock of the catalog is taken.
    """

    def __init__(self, changes: Changes, connections: Connections, validate: Validate) -> None:
        self._changes = changes
        self._connections = connections
        self._validate = validate

    def create_connection(
        self, execution: Execution, named: tuple[str, str], statement: CreateConnection
    ) -> None:
        settings = self._settings(execution.context, statement.options)
        details = ConnectionDetails(statement.kind, settings)
        blank = self._changes.new_item(ItemKind.CONNECTION, *named, execution.user)
        item = replace(blank, details=details, depends_on=details.secrets)
        ops = [CreateItem(item)]
        # What the catalog refuses need not be tried.
        apply(self._changes.state, ops)
        self._try(item.full_name, details, statement.validate)
        with self._changes.defining(execution.cancellation):
            self._changes.commit(ops, execution.user)

    def alter_connection(self, execution: Execution, statement: AlterConnection) -> None:
        """Raises SLACKWATER_CONCURRENT_CHANGE for one that is altered while it is tried."""
        named = self._changes.existing_name(
            execution, ItemKind.CONNECTION, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        before = self._changes.state.get(*named, ItemKind.CONNECTION)
        given = self._settings(execution.context, statement.given)
        details = altered_details(before.of(ConnectionDetails), given, statement.reset)
        self._try(before.full_name, details, statement.validate)
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.item(before.id)
            if item.details != before.details:
                raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName=item.full_name)
            altered = AlterItem(item.id, details=details, depends_on=details.secrets)
            self._changes.commit([altered], execution.user)

    def validate_connection(self, execution: Execution, statement: ValidateConnection) -> None:
        """Tries a connection as it is. Raises SLACKWATER_CONNECTION_FAILED."""
        named = execution.context.resolve(statement.name)
        item = self._changes.state.get(*named, ItemKind.CONNECTION)
        self._try(item.full_name, item.of(ConnectionDetails), True)

    def _try(self, name: str, details: ConnectionDetails, asked: bool | None) -> None:
        if asked or (asked is None and details.kind in VALIDATED):
            self._validate(name, self._connections.access(details))

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


def altered_details(
    details: ConnectionDetails, given: Iterable[ConnectionSetting], reset: Iterable[str]
) -> ConnectionDetails:
    """The details with other options. Raises what `check` raises."""
    settings = {each.name: each for each in details.settings}
    settings |= {each.name: each for each in given}
    refuse_unknown(details.kind, reset)
    for name in reset:
        settings.pop(name, None)
    check(details.kind, {each.name: each.texts or None for each in settings.values()}, _ALTER)
    return replace(details, settings=tuple(settings.values()), version=details.version + 1)
