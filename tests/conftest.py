"""Fixtures that several test modules share."""

from tests.persistence import env
from tests.postgres import postgres
from tests.product.fixtures import shared_application, workplace

__all__ = ["env", "postgres", "shared_application", "workplace"]
