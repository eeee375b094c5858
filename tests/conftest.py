"""Fixtures that several test modules share."""

from tests.persistence import env
from tests.postgres import postgres

__all__ = ["env", "postgres"]
