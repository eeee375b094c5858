"""The grammar of connections. Source: spec surface 4, docs/decisions 0066.

No error of these statements shows the value of an option, nor a position, with which clients would
show the text: what somebody writes where a secret belongs may be a password.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from slackwater.planner.parser.connection_options import (
    AWS,
    DATABASES,
    FORMS,
    KINDS,
    METASTORE,
    SERVER,
    TUNNEL,
    WORDS,
    Form,
    check,
    invalid,
)
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionKind,
    ConnectionOption,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    boolean,
    positive_integer,
    read_options,
)
from slackwater.planner.parser.tokens import Kind, TokenCursor

_KINDS_TEXT = "KAFKA, CONFLUENT SCHEMA REGISTRY, POSTGRES, AWS, ICEBERG CATALOG or SSH TUNNEL"
_REFUSED_KINDS = (
    "MYSQL",
    "SQL SERVER",
    "AWS PRIVATELINK",
    "GCP",
)
_INSTEAD = {
    "MYSQL": "Debezium writes the changes of its tables into topics, which sources of KAFKA read:"
    " the page 'Follow MySQL through Debezium topics' of the documentation says how."
}
_REFUSED_OPTIONS = ("AWS PRIVATELINK", AWS)
_KEY_KIND = re.compile(r"ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)")
_HOST = re.compile(r"[^\s/@,?#]+")
_BROKER = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@,\[\]]+)(?::([0-9]{1,5}))?")
_LAST_PORT = 65535
_SQLITE = re.compile(r"sqlite:////[^?#]+")
_POSTGRESQL = re.compile(
    r"postgresql://[^\s:/@?#]+(?P<password>:[^\s/@?#]*)?@"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/@?#\[\]]+)(?::(?P<port>[0-9]{1,5}))?/[^\s/?#]+"
)


def read_create_connection(cursor: TokenCursor) -> CreateConnection:
    """Reads the statement's rest after CREATE CONNECTION."""
    cursor.statement = "CREATE CONNECTION"
    cursor.hides_text = True
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    cursor.expect("TO")
    kind = _kind(cursor)
    # What is refused for KAFKA has a reason, which is given when the option has been read.
    refused = (TUNNEL,) if kind == "KAFKA" else ()
    bare = kind == "AWS" and _is_bare(cursor)
    options = () if bare else _options(cursor, (*KINDS[kind], *refused), refused)
    check(kind, {each.name: texts_of(each) for each in options}, cursor.statement)
    return CreateConnection(name, kind, options, if_not_exists, _validate(cursor))


def read_alter_connection(cursor: TokenCursor) -> AlterConnection | RotateKeys | None:
    """``SET (..), RESET (..)`` or ``ROTATE KEYS``; None for what other objects know too."""
    cursor.hides_text = True
    start = cursor.mark
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    if cursor.accept("ROTATE", "KEYS"):
        return RotateKeys(name, if_exists)
    if not _is_change(cursor):
        cursor.rewind(start)
        return None
    given: list[ConnectionOption] = []
    reset: list[str] = []
    every = tuple(FORMS)
    while (not given and not reset) or cursor.accept_symbol(","):
        if cursor.accept("SET"):
            given += _options(cursor, every)
        else:
            cursor.expect("RESET")
            reset += _names(cursor, every)
    _refuse_twice(cursor, [*(each.name for each in given), *reset])
    return AlterConnection(name, tuple(given), tuple(reset), _validate(cursor), if_exists)


def read_validate(cursor: TokenCursor) -> ValidateConnection:
    """``VALIDATE CONNECTION c``."""
    cursor.expect("VALIDATE", "CONNECTION")
    cursor.statement = "VALIDATE CONNECTION"
    return ValidateConnection(cursor.name())


def texts_of(option: ConnectionOption) -> tuple[str, ...] | None:
    """The texts of an option; None: it is a secret."""
    return None if isinstance(option.value, QualifiedName) else option.value


def _is_change(cursor: TokenCursor) -> bool:
    return any(
        cursor.looking_at(word) and cursor.peek().is_symbol("(") for word in ("SET", "RESET")
    )


def _kind(cursor: TokenCursor) -> ConnectionKind:
    for refused in _REFUSED_KINDS:
        if cursor.looking_at(*refused.split()):
            advice = _INSTEAD.get(refused, f"Connections lead to {_KINDS_TEXT}.")
            raise cursor.unsupported(f"CREATE CONNECTION ... TO {refused}", advice)
    for kind in KINDS:
        if cursor.accept(*kind.split()):
            return kind
    raise cursor.syntax_error(_KINDS_TEXT)


def _is_bare(cursor: TokenCursor) -> bool:
    """Whether there are no options: what is not said of AWS, the SDK finds."""
    if not cursor.token.is_symbol("("):
        return True
    if not cursor.peek().is_symbol(")"):
        return False
    cursor.advance()
    return cursor.accept_symbol(")")


def _validate(cursor: TokenCursor) -> bool | None:
    if not cursor.accept("WITH"):
        return None
    return bool(read_options(cursor, {"VALIDATE": boolean})["VALIDATE"])


def _options(
    cursor: TokenCursor, names: Sequence[str], refused: Sequence[str] = ()
) -> tuple[ConnectionOption, ...]:
    found: list[ConnectionOption] = []

    def read(cursor: TokenCursor, option: str) -> OptionValue:
        name = _name(option)
        found.append(ConnectionOption(name, _value(cursor, option)))
        return True

    _read_options(cursor, names, read, refused)
    _refuse_twice(cursor, [each.name for each in found])
    return tuple(found)


def _names(cursor: TokenCursor, names: Sequence[str]) -> list[str]:
    found: list[str] = []

    def read(cursor: TokenCursor, option: str) -> OptionValue:
        found.append(_name(option))
        return True

    _read_options(cursor, names, read)
    return found


def _read_options(
    cursor: TokenCursor, names: Sequence[str], read: ReadValue, refused: Sequence[str] = ()
) -> None:
    unknown = (each for each in _REFUSED_OPTIONS if each not in names)
    read_options(cursor, _readers(names, read), refused=(*unknown, *refused))


def _readers(names: Sequence[str], read: ReadValue) -> dict[str, ReadValue]:
    known = dict.fromkeys(names, read)
    if "BROKERS" in known:
        known = {"BROKER": read, **known}
    return {**dict.fromkeys(_REFUSED_OPTIONS, _refused), **known}


def _refused(cursor: TokenCursor, option: str) -> OptionValue:
    raise cursor.unsupported(
        f"The option {option} of a connection",
        "A connection to ICEBERG CATALOG has it, and CREATE SINK ... USING AWS CONNECTION."
        if option == AWS
        else "Name an address that can be reached without it.",
    )


def _name(option: str) -> str:
    return "BROKERS" if option == "BROKER" else option


def _refuse_twice(cursor: TokenCursor, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise cursor.error(
                "SLACKWATER_DUPLICATE_OPTION",
                cursor.token,
                statement=cursor.statement,
                option=name,
            )
        seen.add(name)


def _value(cursor: TokenCursor, option: str) -> tuple[str, ...] | QualifiedName:
    form = FORMS[_name(option)]
    if form in (Form.SECRET, Form.TEXT_OR_SECRET) and cursor.accept("SECRET"):
        return cursor.name("the name of a secret")
    match form:
        case Form.CONNECTION:
            return cursor.name(form.value)
        case Form.SECRET:
            reason = "it takes SECRET and the name of one, which CREATE SECRET makes"
            raise invalid(option, cursor.statement, reason)
        case Form.BROKERS:
            return _brokers(cursor, option)
        case Form.PORT | Form.COUNT:
            return (_number(cursor, option, form),)
        case Form.WORD:
            return (_word(cursor, option),)
        case _:
            return (_text(cursor, option, form),)


def _text(cursor: TokenCursor, option: str, form: Form) -> str:
    found = cursor.string(form.value)
    if not found:
        raise invalid(option, cursor.statement, "it is empty")
    if form is Form.HOST and not _HOST.fullmatch(found):
        raise invalid(option, cursor.statement, "the name or the address of a host is expected")
    if form is Form.URL:
        _check_url(cursor, option, found)
    if form is Form.HOST_KEY and not is_public_key(found):
        reason = "the public key of a host as 'ssh-ed25519 AAAA...' is expected"
        raise invalid(option, cursor.statement, reason)
    return found


def is_public_key(text: str) -> bool:
    """Whether the text is a public key of OpenSSH: its kind, what it is, and maybe a comment."""
    kind, _, rest = text.partition(" ")
    encoded, _, comment = rest.partition(" ")
    if "\n" in comment or _KEY_KIND.fullmatch(kind) is None:
        return False
    try:
        key = base64.b64decode(encoded, validate=True)
    except ValueError:
        return False
    name = kind.encode()
    return len(key) > 4 + len(name) and key.startswith(len(name).to_bytes(4, "big") + name)


def _check_url(cursor: TokenCursor, option: str, url: str) -> None:
    if url.partition(":")[0] in DATABASES:
        _check_database(cursor, option, url)
        return
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https", METASTORE) and bool(parts.hostname)
        is_good = is_good and parts.port != 0 and not any(each.isspace() for each in url)
    except ValueError:
        is_good = False
    if not is_good:
        raise invalid(option, cursor.statement, SERVER)
    if parts.username is not None or parts.password is not None:
        reason = "name and password do not belong into it: there are options for them"
        raise invalid(option, cursor.statement, reason)
    if parts.query or parts.fragment:
        raise invalid(option, cursor.statement, "nothing is expected behind the path")


def _check_database(cursor: TokenCursor, option: str, url: str) -> None:
    if url.startswith("sqlite:"):
        if not _SQLITE.fullmatch(url):
            raise invalid(
                option, cursor.statement, "a file as 'sqlite:////folder/file' is expected"
            )
        return
    found = _POSTGRESQL.fullmatch(url)
    if found is None:
        reason = "a database as 'postgresql://user@host:5432/database' is expected"
        raise invalid(option, cursor.statement, reason)
    if found["password"] is not None:
        reason = "the password does not belong into it: the option CREDENTIAL is for it"
        raise invalid(option, cursor.statement, reason)
    if found["port"] is not None and not 0 < int(found["port"]) <= _LAST_PORT:
        raise invalid(option, cursor.statement, f"the greatest port is {_LAST_PORT}")


def _brokers(cursor: TokenCursor, option: str) -> tuple[str, ...]:
    if option == "BROKER":
        return (_broker(cursor, option),)
    if not cursor.accept_symbol("("):
        return (_broker(cursor, option),)
    found = [_broker(cursor, option)]
    while cursor.accept_symbol(","):
        found.append(_broker(cursor, option))
    cursor.expect_symbol(")")
    return tuple(found)


def _broker(cursor: TokenCursor, option: str) -> str:
    found = cursor.string("a broker as a string, such as 'host:9092'")
    parts = _BROKER.fullmatch(found)
    if parts is None or not (parts[1] is None or 0 < int(parts[1]) <= _LAST_PORT):
        raise invalid(option, cursor.statement, "a broker such as 'host:9092' is expected")
    return found


def _number(cursor: TokenCursor, option: str, form: Form) -> str:
    if cursor.token.kind is Kind.STRING:
        raise invalid(option, cursor.statement, f"{form.value} is expected, without quotes")
    number = positive_integer(cursor, option)
    if form is Form.PORT and number > _LAST_PORT:
        raise invalid(option, cursor.statement, f"the greatest port is {_LAST_PORT}")
    if form is Form.COUNT and number >= 2**15:
        raise invalid(option, cursor.statement, f"the greatest is {2**15 - 1}")
    return str(number)


def _word(cursor: TokenCursor, option: str) -> str:
    token = cursor.token
    allowed = WORDS[option]
    wanted = token.text.casefold().replace("-", "_")
    for word in allowed:
        same = word.casefold().replace("-", "_") == wanted
        if same and token.kind in (Kind.WORD, Kind.STRING):
            cursor.advance()
            return word
    raise invalid(option, cursor.statement, f"one of {', '.join(allowed)} is expected")
