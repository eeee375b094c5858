"""The settings of the coordinator's process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL

from slackwater.persist.leadership import LEASE_MS
from slackwater.persist.locations import Location, parse_location
from slackwater.planner.parser.durations import parse_duration
from slackwater.repr.errors import invalid_option
from slackwater.server.ingress import settings as ingress_settings

SHORTEST_LEASE_MS = 1_000
LONGEST_LEASE_MS = 30_000


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings that the shim passes in environment variables."""

    location: Location
    metastore: str | URL
    application: str
    lease_ms: int
    ingress: Mapping[str, str]
    parameters_file: Path | None = None

    @staticmethod
    def from_environment() -> ProcessSettings:
        """Reads the variables of this process.

        Raises SLACKWATER_INVALID_OPTION, _UNKNOWN_OPTION, _UNSUPPORTED, _METASTORE_REQUIRED,
        _PASSWORD_SHOWN.
        """
        text = os.environ.get("SLACKWATER_LOCATION") or "slackwater-environment"
        location = parse_location(text, os.environ)
        metastore = location.metastore(os.environ.get("SLACKWATER_METASTORE"), os.environ)
        application = os.environ.get("SLACKWATER_APPLICATION", "unknown")
        lease_ms = _lease_ms(os.environ.get("SLACKWATER_LEASE"))
        ingress = json.loads(os.environ.get("SLACKWATER_INGRESS") or "{}")
        ingress_settings.read(ingress)
        file = os.environ.get("SLACKWATER_PARAMETERS_FILE")
        parameters_file = Path(file) if file else None
        return ProcessSettings(location, metastore, application, lease_ms, ingress, parameters_file)

    @property
    def shown(self) -> str:
        """The location as users name it."""
        return str(self.location.local) if self.location.is_local else self.location.uri


def _lease_ms(text: str | None) -> int:
    """The length of the lease in milliseconds. Raises SLACKWATER_INVALID_OPTION."""
    if not text:
        return LEASE_MS
    try:
        lease_ms = parse_duration(text)
        reason = "it has to be between 1 s and 30 s"
    except ValueError as error:
        lease_ms, reason = 0, str(error)
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        raise invalid_option("spark.slackwater.lease", "the session", text, reason)
    return lease_ms
