"""Kafka clusters, tried by librdkafka's client for administration."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.adapter.external import libraries
from slackwater.adapter.external.trials.reaching import SILENT, reach_one
from slackwater.adapter.external.trials.steps import Deadline, Step, StepFailed, Target
from slackwater.storage.access import Tls
from slackwater.storage.kafka.access import KafkaAccess

KAFKA_PORT = 9092
_LOGIN_S = 4.0
"""The time that the client has, beside what names, TCP and TLS need."""
_ROUND_S = 1.0
_ROUNDS = 3
"""After so many rounds in which connections broke, there is no better answer to come."""
_VAGUE = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT"})
_LOGINS = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "DELEGATION_TOKEN_AUTH_DISABLED",
    }
)


@dataclass(frozen=True, slots=True)
class ClientError:
    """An error of librdkafka by its name, and its text."""

    name: str
    text: str

    @staticmethod
    def of(error: Any) -> ClientError:
        """The error of a KafkaError."""
        return ClientError(error.name(), error.str())


def validate(access: KafkaAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING."""
    library = libraries.confluent_kafka()
    settings = dict(access.settings)
    brokers = settings["bootstrap.servers"].split(",")
    targets = [Target.of(broker, KAFKA_PORT) for broker in brokers]
    target = reach_one(targets, tls_of(settings), deadline.earlier(_LOGIN_S))
    _log_in(library, settings, target, deadline)


def tls_of(settings: dict[str, str]) -> Tls | None:
    """The certificates in settings of librdkafka; None: the connection has no TLS."""
    if not settings["security.protocol"].endswith("SSL"):
        return None
    return Tls(
        settings.get("ssl.ca.pem"), settings.get("ssl.certificate.pem"), settings.get("ssl.key.pem")
    )


def decisive(errors: Sequence[ClientError]) -> tuple[Step, str] | None:
    """The step that failed for good, by what the client said, and why; None: it may still work."""
    for error in errors:
        if error.name in _LOGINS:
            return "login", error.text
        if error.name.endswith("_AUTHORIZATION_FAILED"):
            return "permission", error.text
        if error.name == "_SSL":
            return "TLS", error.text
    return None


def broken(errors: Sequence[ClientError]) -> str:
    """The reason of a cluster that takes connections and does not answer as Kafka does."""
    texts = [each.text for each in errors if each.name not in _VAGUE]
    if texts:
        return texts[-1]
    if any(each.name == "_TRANSPORT" for each in errors):
        return "it does not answer as a broker does; it may expect another SECURITY PROTOCOL"
    return SILENT


def _log_in(library: Any, settings: dict[str, str], target: Target, deadline: Deadline) -> None:
    told: list[ClientError] = []
    options = {**settings, "error_cb": lambda error: told.append(ClientError.of(error))}
    try:
        client = library.admin.AdminClient(options, logger=_silent())
    except (library.KafkaException, ValueError) as refused:
        raise StepFailed("login", target.address, _text(refused)) from None
    with client:
        breaks = 0
        while True:
            failure = _asked(library, client, min(_ROUND_S, deadline.left))
            if failure is None:
                return
            client.poll(0)
            found = decisive([*told, failure])
            if found is not None:
                raise StepFailed(found[0], target.address, found[1])
            breaks += bool(told)
            if breaks >= _ROUNDS or deadline.left <= 0:
                raise StepFailed("login", target.address, broken([failure, *told]))


def _asked(library: Any, client: Any, timeout_s: float) -> ClientError | None:
    """Asks for the topics of the cluster. The error; None: it answered."""
    try:
        client.list_topics(timeout=max(timeout_s, 0.1))
    except library.KafkaException as failed:
        return ClientError.of(failed.args[0])
    return None


def _text(refused: Exception) -> str:
    error = refused.args[0] if refused.args else refused
    return str(error.str()) if hasattr(error, "str") else str(error)


def _silent() -> logging.Logger:
    """A logger for a library that would write to standard error without one."""
    logger = logging.getLogger("slackwater.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
