"""Settings that a session has for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def under(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block the session has these settings, and afterwards what it had before."""
    before = {name: session.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, str(value))
