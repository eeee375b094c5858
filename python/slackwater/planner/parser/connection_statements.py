"""The statements of connections as values. Source: spec surface 4, docs/decisions 0066.

No value of a secret is in them: where one is needed, they have the secret's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.planner.parser.names import QualifiedName

ConnectionKind = Literal[
    "KAFKA", "CONFLUENT SCHEMA REGISTRY", "POSTGRES", "AWS", "ICEBERG CATALOG", "SSH TUNNEL"
]


@dataclass(frozen=True, slots=True)
class ConnectionOption:
    """An option with its texts, of which BROKERS alone may have several, or with a secret's name.

    SSH TUNNEL has the name of a connection.
    BROKER with one text is BROKERS with that text.
    """

    name: str
    value: tuple[str, ...] | QualifiedName


@dataclass(frozen=True, slots=True)
class CreateConnection:
    """`validate` None: as is the default of the kind."""

    name: QualifiedName
    kind: ConnectionKind
    options: tuple[ConnectionOption, ...] = ()
    if_not_exists: bool = False
    validate: bool | None = None


@dataclass(frozen=True, slots=True)
class AlterConnection:
    """ALTER CONNECTION ... SET, RESET: `given` replace or join its options, `reset` leave it.

    The names in `reset` are in upper case, BROKER being BROKERS.
    """

    name: QualifiedName
    given: tuple[ConnectionOption, ...] = ()
    reset: tuple[str, ...] = ()
    validate: bool | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ValidateConnection:
    """VALIDATE CONNECTION: the connection is tried as it is."""

    name: QualifiedName


@dataclass(frozen=True, slots=True)
class RotateKeys:
    """ALTER CONNECTION ... ROTATE KEYS: the second pair becomes the first, a new one follows."""

    name: QualifiedName
    if_exists: bool = False


ConnectionStatement = CreateConnection | AlterConnection | RotateKeys | ValidateConnection
