"""CREATE CONNECTION, ALTER CONNECTION ... SET, RESET and ROTATE KEYS, VALIDATE CONNECTION."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ConnectionDetails, ConnectionSetting
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, CreateItem, apply
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.external.trials.validation import Access
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.tunnel_keys import KeyPair, TunnelKeys
from slackwater.planner.parser.connection_options import (
    FORMS,
    LEADS_TO,
    VALIDATED,
    Form,
    check,
    invalid,
    refuse_unknown,
)
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionOption,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import user_error

Validate = Callable[[str, Access], None]
"""Tries the connection of that name. Raises SLACKWATER_CONNECTION_FAILED."""

_ALTER = "ALTER CONNECTION"
_CONNECTION = "a connection"
_HOST_KEY = "HOST KEY"


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
        pairs = (KeyPair.new(), KeyPair.new()) if statement.kind == "SSH TUNNEL" else ()
        public = tuple(each.public for each in pairs)
        private = tuple(each.private for each in pairs)
        details = ConnectionDetails(statement.kind, settings, public_keys=public)
        blank = self._changes.new_item(ItemKind.CONNECTION, *named, execution.user)
        item = replace(blank, details=details, depends_on=details.depends_on)
        # What the catalog refuses need not be tried.
        apply(self._changes.state, [CreateItem(item)])
        if _is_tried(details, statement.validate):
            if pairs:
                access: Access = self._connections.new_tunnel(item, private)
            else:
                access = self._connections.access(item)
            self._validate(item.full_name, access)

        def make(conn: Connection) -> Sequence[CatalogOp]:
            if pairs:
                TunnelKeys.put(conn, item.id, private)
            return [CreateItem(item)]

        with self._changes.defining(execution.cancellation):
            self._changes.commit(make, execution.user)

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
        if _is_tried(details, statement.validate):
            access = self._connections.access(replace(before, details=details))
            self._validate(before.full_name, access)
        is_another_key = _HOST_KEY in (*(each.name for each in given), *statement.reset)

        def make(conn: Connection) -> Sequence[CatalogOp]:
            if is_another_key:
                TunnelKeys.forget_seen(conn, before.id)
            return [AlterItem(before.id, details=details, depends_on=details.depends_on)]

        with self._changes.defining(execution.cancellation):
            item = self._changes.state.item(before.id)
            if item.details != before.details:
                raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName=item.full_name)
            self._changes.commit(make, execution.user)

    def rotate_keys(self, execution: Execution, statement: RotateKeys) -> None:
        """The second pair of a tunnel becomes its first, and a new one its second.

        Raises SLACKWATER_UNSUPPORTED for a connection of another kind.
        """
        named = self._changes.existing_name(
            execution, ItemKind.CONNECTION, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        new = KeyPair.new()
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.get(*named, ItemKind.CONNECTION)
            details = item.of(ConnectionDetails)
            if details.kind != "SSH TUNNEL":
                raise user_error(
                    "SLACKWATER_UNSUPPORTED",
                    feature=f"ROTATE KEYS of a connection to {details.kind}",
                    advice="ALTER SECRET changes the key of such a connection.",
                )
            second = self._connections.ssh(item.id).keys[1]
            rotated = replace(
                details,
                public_keys=(details.public_keys[1], new.public),
                version=details.version + 1,
            )

            def make(conn: Connection) -> Sequence[CatalogOp]:
                TunnelKeys.put(conn, item.id, (second, new.private))
                return [AlterItem(item.id, details=rotated)]

            self._changes.commit(make, execution.user)

    def validate_connection(self, execution: Execution, statement: ValidateConnection) -> None:
        """Tries a connection as it is. Raises SLACKWATER_CONNECTION_FAILED."""
        named = execution.context.resolve(statement.name)
        item = self._changes.state.get(*named, ItemKind.CONNECTION)
        self._validate(item.full_name, self._connections.access(item))

    def _settings(
        self, context: Context, options: Iterable[ConnectionOption]
    ) -> tuple[ConnectionSetting, ...]:
        """The options with ids of secrets and connections. Raises SLACKWATER_UNKNOWN_OBJECT."""

        def setting(option: ConnectionOption) -> ConnectionSetting:
            if not isinstance(option.value, QualifiedName):
                return ConnectionSetting(option.name, option.value)
            if FORMS[option.name] is Form.CONNECTION:
                other = self._changes.state.get(*context.resolve(option.value), ItemKind.CONNECTION)
                kind = other.of(ConnectionDetails).kind
                if kind != LEADS_TO[option.name]:
                    raise invalid(option.name, _CONNECTION, f"the connection is one to {kind}")
                return ConnectionSetting(option.name, connection=other.id)
            named = context.resolve(option.value)
            secret = self._changes.state.get(*named, ItemKind.SECRET).id
            return ConnectionSetting(option.name, secret=secret)

        return tuple(map(setting, options))


def _is_tried(details: ConnectionDetails, asked: bool | None) -> bool:
    return details.kind in VALIDATED if asked is None else asked


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
