"""Schema registries over HTTP, as Confluent's answers. Each question is a connection of its own.

Questions are rare: a source asks once for each schema that messages are written in, a sink gives
its schemas when it begins.

Source: docs/decisions 0071, 0075; Confluent's reference of the registry's API.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from slackwater.adapter.external.trials.reaching import SILENT, reached
from slackwater.adapter.external.trials.registry import authorization, failure, target_of
from slackwater.adapter.external.trials.steps import Deadline, StepFailed
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.access import RegistryAccess

ANSWER_S = 10.0
"""A registry may take so long to answer a question."""
_LARGEST = 16 * 1024 * 1024
_MISSING = 404
_REFUSED = (409, 422)
"""The statuses of a schema that is not compatible, or none."""
_SHOWN = 2000


_OTHER = "it does not answer as a schema registry does"
_SENDS = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a question."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """Another schema that a schema refers to by a `name`."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of some kind."""

    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()

    def refuse_other(self, kind: str) -> None:
        """Raises ValueError for a schema that is of another kind than this."""
        if self.kind != kind:
            raise ValueError(
                f"the registry has a schema of the kind {self.kind}, which is not {kind}"
            )


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry by the name of its connection; `access` is the way to it as it is now.

    Each method raises SLACKWATER_REGISTRY_UNREACHABLE; `schema` and `latest` raise ValueError for
    a schema that is not one of Avro alone. A `form` is what the registry knows other ways to write
    a schema by, if it does.
    """

    name: str
    access: Callable[[], RegistryAccess]

    def schema(self, number: int) -> str | None:
        """The schema with that id; None: there is none."""
        return _avro(self.registered_by_id(number))

    def latest(self, subject: str) -> str | None:
        """The last schema of the subject; None: it has none."""
        return _avro(self.registered_last(subject))

    def registered_by_id(self, number: int, form: str | None = None) -> RegisteredSchema | None:
        """The schema of any kind with that id; None: there is none."""
        return self._asked(f"/schemas/ids/{number}", form)

    def registered_last(self, subject: str, form: str | None = None) -> RegisteredSchema | None:
        """The last schema of the subject, of any kind; None: it has none."""
        return self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest", form)

    def registered_version(
        self, reference: SchemaReference, form: str | None = None
    ) -> RegisteredSchema | None:
        """The schema that is referred to; None: there is none."""
        subject = quote(reference.subject, safe="")
        return self._asked(f"/subjects/{subject}/versions/{reference.version}", form)

    def registered(self, subject: str, schema: RegisteredSchema, compatibility: str | None) -> int:
        """The id of the schema, which the subject has from now on if it had not.

        A subject that has no level of compatibility of its own gets the one that is given. Raises
        SLACKWATER_SCHEMA_REFUSED, which has the registry's words.
        """
        access, name = self.access(), quote(subject, safe="")
        if compatibility is not None:
            level = f"/config/{name}"
            found = self._answered(access, "GET", level)
            if found.status == _MISSING:
                found = self._answered(access, "PUT", level, {"compatibility": compatibility})
            self._check(access, subject, found)
        sent = {"schema": schema.text}
        if schema.kind != "AVRO":
            sent["schemaType"] = schema.kind
        found = self._answered(access, "POST", f"/subjects/{name}/versions", sent)
        self._check(access, subject, found)
        try:
            number = json.loads(found.body)["id"]
            if not isinstance(number, int) or number not in range(2**32):
                raise ValueError(f"{number!r} is no id")
        except (ValueError, LookupError, TypeError):
            raise self._unreachable(access, _OTHER) from None
        return number

    def _check(self, access: RegistryAccess, subject: str, found: _Answer) -> None:
        """Raises what the answer says has failed."""
        if found.status in _REFUSED:
            reason = _message(found.body) or f"HTTP {found.status}"
            raise user_error(
                "SLACKWATER_SCHEMA_REFUSED",
                connectionName=self.name,
                subject=subject,
                reason=access.scrubbed(reason)[:_SHOWN].removesuffix("."),
            )
        failed_step = failure(found.status)
        if failed_step is not None:
            raise self._unreachable(access, failed_step[1])

    def _asked(self, path: str, form: str | None) -> RegisteredSchema | None:
        access = self.access()
        asked = path if form is None else f"{path}?format={form}"
        found = self._answered(access, "GET", asked)
        if found.status == _MISSING:
            return None
        failed_step = failure(found.status)
        if failed_step is not None:
            raise self._unreachable(access, failed_step[1])
        return self._schema(access, found.body)

    def _answered(
        self, access: RegistryAccess, method: str, path: str, sent: object = None
    ) -> _Answer:
        deadline = Deadline.after(ANSWER_S)
        target = target_of(access)
        try:
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = reached(target, access.tls, deadline, tunnel=access.tunnel)
            try:
                connection.sock.settimeout(deadline.left)
                base = urlsplit(access.url).path.rstrip("/")
                headers = {**authorization(access), **({} if sent is None else _SENDS)}
                content = None if sent is None else json.dumps(sent).encode()
                connection.request(method, f"{base}{path}", content, headers)
                answer = connection.getresponse()
                body = answer.read(_LARGEST)
            finally:
                connection.close()
        except StepFailed as failed:
            raise self._unreachable(access, str(failed)) from None
        except TimeoutError:
            raise self._unreachable(access, SILENT) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(access, str(error) or "it closed the connection") from None
        return _Answer(answer.status, body)

    def _schema(self, access: RegistryAccess, body: bytes) -> RegisteredSchema:
        try:
            found: Any = json.loads(body)
            return RegisteredSchema(
                str(found.get("schemaType") or "AVRO"),
                str(found["schema"]),
                tuple(
                    SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
                    for each in found.get("references") or ()
                ),
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._unreachable(access, _OTHER) from None

    def _unreachable(self, access: RegistryAccess, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_REGISTRY_UNREACHABLE",
            connectionName=self.name,
            reason=access.scrubbed(reason).removesuffix("."),
        )


def _avro(found: RegisteredSchema | None) -> str | None:
    if found is None:
        return None
    found.refuse_other("AVRO")
    if found.references:
        raise ValueError("the schema refers to others of the registry, which are not looked up")
    return found.text


def _message(body: bytes) -> str:
    """The words of an answer that says why something was refused; empty: there are none."""
    try:
        found: Any = json.loads(body)["message"]
    except (ValueError, LookupError, TypeError):
        return ""
    return " ".join(str(found).split())
