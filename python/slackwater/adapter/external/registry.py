"""Schema registries over HTTP, as Confluent's answers. Each question is a connection of its own.

Questions are rare: a source asks once for each schema that messages are written in.

Source: docs/decisions 0071; Confluent's reference of the registry's API.
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


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry by the name of its connection; `access` is the way to it as it is now.

    Each method raises SLACKWATER_REGISTRY_UNREACHABLE, and ValueError for a schema that is not one
    of Avro alone.
    """

    name: str
    access: Callable[[], RegistryAccess]

    def schema(self, number: int) -> str | None:
        """The schema with that id; None: there is none."""
        return self._asked(f"/schemas/ids/{number}")

    def latest(self, subject: str) -> str | None:
        """The last schema of the subject; None: it has none."""
        return self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def _asked(self, path: str) -> str | None:
        access = self.access()
        deadline = Deadline.after(ANSWER_S)
        target = target_of(access)
        try:
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = reached(target, access.tls, deadline)
            try:
                connection.sock.settimeout(deadline.left)
                base = urlsplit(access.url).path.rstrip("/")
                connection.request("GET", f"{base}{path}", headers=authorization(access))
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
        if answer.status == _MISSING:
            return None
        failed_step = failure(answer.status)
        if failed_step is not None:
            raise self._unreachable(access, failed_step[1])
        return self._schema(access, body)

    def _schema(self, access: RegistryAccess, body: bytes) -> str:
        try:
            found: Any = json.loads(body)
            text, kind = found["schema"], found.get("schemaType", "AVRO")
            references = found.get("references")
        except (ValueError, LookupError, TypeError, AttributeError):
            reason = "it does not answer as a schema registry does"
            raise self._unreachable(access, reason) from None
        if kind != "AVRO":
            raise ValueError(f"the registry has a schema of the kind {kind}, which is not AVRO")
        if references:
            raise ValueError("the schema refers to others of the registry, which are not looked up")
        return str(text)

    def _unreachable(self, access: RegistryAccess, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_REGISTRY_UNREACHABLE",
            connectionName=self.name,
            reason=access.scrubbed(reason).removesuffix("."),
        )
