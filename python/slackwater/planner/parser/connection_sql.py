"""The statements of connections as canonical text, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.planner.parser.connection_options import FORMS, Form
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionOption,
    ConnectionStatement,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.relation import quote_string

_BARE = (Form.PORT, Form.COUNT)


def connection_sql(s: ConnectionStatement) -> Iterable[str]:
    """The pieces of the text, some of which may be empty."""
    match s:
        case CreateConnection():
            yield from ("CREATE CONNECTION", "IF NOT EXISTS" if s.if_not_exists else "")
            yield from (s.name.sql, "TO", s.kind)
            yield f"({', '.join(map(_option, s.options))})" if s.options else ""
            yield _validate(s.validate)
        case AlterConnection():
            given = f"SET ({', '.join(map(_option, s.given))})" if s.given else ""
            reset = f"RESET ({', '.join(s.reset)})" if s.reset else ""
            yield from ("ALTER CONNECTION", "IF EXISTS" if s.if_exists else "", s.name.sql)
            yield ", ".join(each for each in (given, reset) if each)
            yield _validate(s.validate)
        case RotateKeys(name, if_exists):
            yield from ("ALTER CONNECTION", "IF EXISTS" if if_exists else "", name.sql)
            yield "ROTATE KEYS"
        case ValidateConnection(name):
            yield from ("VALIDATE CONNECTION", name.sql)


def _option(option: ConnectionOption) -> str:
    match option.value:
        case QualifiedName() as connection if FORMS[option.name] is Form.CONNECTION:
            return f"{option.name} {connection.sql}"
        case QualifiedName() as secret:
            return f"{option.name} SECRET {secret.sql}"
        case (broker,) if FORMS[option.name] is Form.BROKERS:
            return f"BROKER {quote_string(broker)}"
        case brokers if FORMS[option.name] is Form.BROKERS:
            return f"BROKERS ({', '.join(map(quote_string, brokers))})"
        case (text, *_) if FORMS[option.name] in _BARE:
            return f"{option.name} {text}"
        case texts:
            return f"{option.name} {quote_string(texts[0])}"


def _validate(validate: bool | None) -> str:
    return "" if validate is None else f"WITH (VALIDATE {'TRUE' if validate else 'FALSE'})"
