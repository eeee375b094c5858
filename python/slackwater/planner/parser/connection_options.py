"""The options of connections by kind, and which of them go together.

Source: spec surface 4, docs/decisions 0066. Errors name an option and never show its value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.redaction import REDACTED
from slackwater.repr.errors import SlackwaterError, user_error


class Form(enum.Enum):
    """The forms of values, in the words of errors."""

    TEXT = "a string"
    HOST = "a host as a string"
    URL = "a URL as a string"
    BROKERS = "'host:port', or several in parentheses"
    TEXT_OR_SECRET = "a string, or SECRET and a name"
    SECRET = "SECRET and a name"
    PORT = "a port"
    COUNT = "a whole number"
    WORD = "a word"
    HOST_KEY = "a public key as a string"
    CONNECTION = "the name of a connection"


TUNNEL = "SSH TUNNEL"
AWS = "AWS CONNECTION"
LEADS_TO: Mapping[str, ConnectionKind] = {TUNNEL: "SSH TUNNEL", AWS: "AWS"}
"""The kinds of connections that options name."""
_TLS = ("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY")
_SASL = ("SASL MECHANISMS", "SASL USERNAME", "SASL PASSWORD")
KINDS: Mapping[ConnectionKind, tuple[str, ...]] = {
    "KAFKA": (
        "BROKERS",
        "SECURITY PROTOCOL",
        *_SASL,
        *_TLS,
        "PROGRESS TOPIC",
        "PROGRESS TOPIC REPLICATION FACTOR",
    ),
    "CONFLUENT SCHEMA REGISTRY": ("URL", "USERNAME", "PASSWORD", *_TLS, TUNNEL),
    "POSTGRES": ("HOST", "PORT", "DATABASE", "USER", "PASSWORD", "SSL MODE", *_TLS, TUNNEL),
    "AWS": (
        "REGION",
        "ENDPOINT",
        "ACCESS KEY ID",
        "SECRET ACCESS KEY",
        "SESSION TOKEN",
        "ASSUME ROLE ARN",
        "ASSUME ROLE SESSION NAME",
    ),
    "ICEBERG CATALOG": (
        "CATALOG TYPE",
        "URL",
        "WAREHOUSE",
        "CATALOG NAME",
        "CREDENTIAL",
        "TOKEN",
        "SCOPE",
        AWS,
    ),
    "SSH TUNNEL": ("HOST", "PORT", "USER", "HOST KEY"),
}
"""The options that a connection of each kind has. BROKER is another word for BROKERS."""

FORMS: Mapping[str, Form] = {
    "BROKERS": Form.BROKERS,
    "SECURITY PROTOCOL": Form.WORD,
    "SASL MECHANISMS": Form.WORD,
    "SASL USERNAME": Form.TEXT_OR_SECRET,
    "SASL PASSWORD": Form.SECRET,
    "SSL CERTIFICATE AUTHORITY": Form.TEXT_OR_SECRET,
    "SSL CERTIFICATE": Form.TEXT_OR_SECRET,
    "SSL KEY": Form.SECRET,
    "PROGRESS TOPIC": Form.TEXT,
    "PROGRESS TOPIC REPLICATION FACTOR": Form.COUNT,
    "URL": Form.URL,
    "USERNAME": Form.TEXT_OR_SECRET,
    "PASSWORD": Form.SECRET,
    "HOST": Form.HOST,
    "PORT": Form.PORT,
    "DATABASE": Form.TEXT,
    "USER": Form.TEXT_OR_SECRET,
    "SSL MODE": Form.WORD,
    "REGION": Form.TEXT,
    "ENDPOINT": Form.URL,
    "ACCESS KEY ID": Form.TEXT_OR_SECRET,
    "SECRET ACCESS KEY": Form.SECRET,
    "SESSION TOKEN": Form.TEXT_OR_SECRET,
    "ASSUME ROLE ARN": Form.TEXT,
    "ASSUME ROLE SESSION NAME": Form.TEXT,
    "CATALOG TYPE": Form.WORD,
    "WAREHOUSE": Form.TEXT,
    "CATALOG NAME": Form.TEXT,
    "CREDENTIAL": Form.SECRET,
    "TOKEN": Form.SECRET,
    "SCOPE": Form.TEXT,
    "HOST KEY": Form.HOST_KEY,
    TUNNEL: Form.CONNECTION,
    AWS: Form.CONNECTION,
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "SECURITY PROTOCOL": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "SASL MECHANISMS": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "SSL MODE": ("disable", "require", "verify_ca", "verify_full"),
    "CATALOG TYPE": ("rest", "sql", "hive", "glue", "s3tablesrest"),
}
_REQUIRED: Mapping[ConnectionKind, tuple[str, ...]] = {
    "KAFKA": ("BROKERS",),
    "CONFLUENT SCHEMA REGISTRY": ("URL",),
    "POSTGRES": ("HOST", "DATABASE", "USER"),
    "AWS": (),
    "ICEBERG CATALOG": ("CATALOG TYPE",),
    "SSH TUNNEL": ("HOST", "USER"),
}
_NEEDED_BY_CATALOG: Mapping[str, tuple[str, ...]] = {
    "rest": ("URL",),
    "sql": ("URL", "WAREHOUSE"),
    "hive": ("URL",),
    "glue": ("WAREHOUSE", AWS),
    "s3tablesrest": ("URL", "WAREHOUSE", AWS),
}
_TAKEN_BY_CATALOG: Mapping[str, tuple[str, ...]] = {
    "rest": ("WAREHOUSE", "CREDENTIAL", "TOKEN", "SCOPE"),
    "sql": ("CATALOG NAME", "CREDENTIAL"),
    "hive": ("WAREHOUSE",),
    "glue": ("URL",),
    "s3tablesrest": (),
}
DATABASES = ("postgresql", "sqlite")
"""The databases that may be a catalog, as their URLs begin."""
METASTORE = "thrift"
"""A metastore of Hive that may be a catalog, likewise."""
VALIDATED: frozenset[ConnectionKind] = frozenset(
    {"KAFKA", "CONFLUENT SCHEMA REGISTRY", "POSTGRES", "ICEBERG CATALOG"}
)
"""The kinds that are tried when they are created, unless VALIDATE says otherwise."""

SERVER = "a URL such as 'https://host:443' is expected"

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

Given = Mapping[str, tuple[str, ...] | None]
"""Options by name: their texts, or None for one that is a secret."""


def shown(option: str) -> str:
    """The name of an option in errors."""
    return "BROKER" if option == "BROKERS" else option


def first_text(given: Given, option: str) -> str | None:
    """The text of an option; None: it is a secret, or not there."""
    texts = given.get(option)
    return texts[0] if texts else None


def security_protocol(given: Given) -> str:
    """SECURITY PROTOCOL of a connection to KAFKA, which follows from its other options."""
    default = "SASL_SSL" if any(option in given for option in _SASL) else "SSL"
    return first_text(given, "SECURITY PROTOCOL") or default


def ssl_mode(given: Given) -> str:
    """SSL MODE of a connection to POSTGRES."""
    return first_text(given, "SSL MODE") or "disable"


def check(kind: ConnectionKind, given: Given, statement: str) -> None:
    """Checks that options of a connection are enough and go together.

    Raises SLACKWATER_UNKNOWN_OPTION, SLACKWATER_SYNTAX_ERROR for one that is missing, and
    SLACKWATER_INVALID_OPTION for one that another excludes.
    """
    refuse_unknown(kind, given)
    for option in _REQUIRED[kind]:
        _need(given, option, statement, f"the option {shown(option)}")
    match kind:
        case "KAFKA":
            _check_kafka(given, statement)
        case "CONFLUENT SCHEMA REGISTRY":
            _check_registry(given, statement)
        case "POSTGRES":
            _check_postgres(given, statement)
        case "AWS":
            _check_aws(given, statement)
        case "ICEBERG CATALOG":
            _check_iceberg(given, statement)
        case "SSH TUNNEL":
            pass


def refuse_unknown(kind: ConnectionKind, options: Iterable[str]) -> None:
    """Raises SLACKWATER_UNKNOWN_OPTION for one that connections of the kind do not have.

    For SSH TUNNEL of a connection to KAFKA it is SLACKWATER_UNSUPPORTED, which says why.
    """
    known = KINDS[kind]
    for option in options:
        if option == TUNNEL and kind == "KAFKA":
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature="The option SSH TUNNEL of a connection to KAFKA",
                advice="Brokers announce addresses of their own, which the client goes to past any"
                " tunnel. Name brokers that announce addresses that can be reached without it.",
            )
        if option not in known:
            raise user_error(
                "SLACKWATER_UNKNOWN_OPTION",
                statement=f"A connection to {kind}",
                option=shown(option),
                options=", ".join(map(shown, known)),
            )


def _check_kafka(given: Given, statement: str) -> None:
    protocol = security_protocol(given)
    if protocol.startswith("SASL"):
        for option in _SASL:
            _need(
                given, option, statement, f"the option {option}, for SECURITY PROTOCOL {protocol}"
            )
    else:
        _exclude(given, _SASL, statement, f"SECURITY PROTOCOL is {protocol}")
    if not protocol.endswith("SSL"):
        _exclude(given, _TLS, statement, f"SECURITY PROTOCOL is {protocol}")
    _both(given, "SSL CERTIFICATE", "SSL KEY", statement)
    _with(given, "PROGRESS TOPIC REPLICATION FACTOR", "PROGRESS TOPIC", statement)


def _check_registry(given: Given, statement: str) -> None:
    _check_server(given, "URL", statement)
    _with(given, "PASSWORD", "USERNAME", statement)
    if (first_text(given, "URL") or "").lower().startswith("http:"):
        _exclude(given, _TLS, statement, "URL begins with http:")
    _both(given, "SSL CERTIFICATE", "SSL KEY", statement)


def _check_postgres(given: Given, statement: str) -> None:
    mode = ssl_mode(given)
    if mode == "disable":
        _exclude(given, _TLS, statement, "SSL MODE is disable")
    if mode in ("verify_ca", "verify_full"):
        authority = "SSL CERTIFICATE AUTHORITY"
        _need(given, authority, statement, f"the option {authority}, for SSL MODE {mode}")
    _both(given, "SSL CERTIFICATE", "SSL KEY", statement)


def _check_iceberg(given: Given, statement: str) -> None:
    kind = first_text(given, "CATALOG TYPE") or "rest"
    for option in _NEEDED_BY_CATALOG[kind]:
        _need(given, option, statement, f"the option {option}, for CATALOG TYPE {kind}")
    taken = ("CATALOG TYPE", *_NEEDED_BY_CATALOG[kind], *_TAKEN_BY_CATALOG[kind])
    others = (each for each in KINDS["ICEBERG CATALOG"] if each not in taken)
    _exclude(given, tuple(others), statement, f"CATALOG TYPE is {kind}")
    match kind:
        case "rest":
            _with(given, "SCOPE", "CREDENTIAL", statement)
            _check_server(given, "URL", statement)
        case "glue" | "s3tablesrest":
            _check_server(given, "URL", statement)
        case "hive":
            if _scheme(given, "URL") != METASTORE:
                reason = "a metastore as 'thrift://host:9083' is expected"
                raise invalid("URL", statement, reason)
        case "sql":
            _check_database(given, statement)
    warehouse = first_text(given, "WAREHOUSE") or ""
    if kind in ("sql", "glue") and not re.match(r"/|[a-z][a-z0-9]*://", warehouse):
        raise invalid("WAREHOUSE", statement, "an address such as 's3://bucket/path' is expected")
    if kind == "s3tablesrest" and not warehouse.startswith("arn:"):
        raise invalid("WAREHOUSE", statement, "the ARN of a table bucket is expected")


def _check_database(given: Given, statement: str) -> None:
    database = _scheme(given, "URL")
    if database not in DATABASES:
        reason = "a database as 'postgresql://user@host/database' or 'sqlite:////file' is expected"
        raise invalid("URL", statement, reason)
    if database == "sqlite":
        _exclude(given, ("CREDENTIAL",), statement, "the database is SQLite")


def _check_aws(given: Given, statement: str) -> None:
    _check_server(given, "ENDPOINT", statement)
    _both(given, "ACCESS KEY ID", "SECRET ACCESS KEY", statement)
    _with(given, "SESSION TOKEN", "ACCESS KEY ID", statement)
    _with(given, "ASSUME ROLE SESSION NAME", "ASSUME ROLE ARN", statement)


def _check_server(given: Given, option: str, statement: str) -> None:
    if _scheme(given, option) in (*DATABASES, METASTORE):
        raise invalid(option, statement, SERVER)


def _scheme(given: Given, option: str) -> str:
    return (first_text(given, option) or "").partition(":")[0]


def _need(given: Given, option: str, statement: str, expected: str) -> None:
    if option not in given:
        raise user_error(
            "SLACKWATER_SYNTAX_ERROR",
            statement=statement,
            found="the end of the options",
            expected=expected,
        )


def _exclude(given: Given, options: tuple[str, ...], statement: str, reason: str) -> None:
    for option in options:
        if option in given:
            raise invalid(option, statement, f"there is none where {reason}")


def _both(given: Given, one: str, other: str, statement: str) -> None:
    _with(given, one, other, statement)
    _with(given, other, one, statement)


def _with(given: Given, option: str, needed: str, statement: str) -> None:
    if option in given:
        _need(given, needed, statement, f"the option {needed}, which goes with {option}")


def invalid(option: str, statement: str, reason: str) -> SlackwaterError:
    """SLACKWATER_INVALID_OPTION without the value."""
    return user_error(
        "SLACKWATER_INVALID_OPTION",
        option=shown(option),
        statement=statement,
        value=REDACTED,
        reason=reason,
    )
