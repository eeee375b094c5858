"""Fixtures that several test modules share."""

from tests.product.fixtures import shared_application, workplace

__all__ = ["shared_application", "workplace"]
