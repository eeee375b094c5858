"""Answers that come by themselves, once what is behind a relation has come."""

from __future__ import annotations

from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until


def becomes(place, query, expected, *, may_fail=True):
    """Waits until the query has these rows. Not `may_fail`: an error of it is one of the test."""
    found = []

    def is_so():
        try:
            found[:] = sorted(place.rows(query), key=repr)
        except SqlError as error:
            if not may_fail:
                raise
            found[:] = [error]
            return False
        return found == sorted(expected, key=repr)

    try:
        wait_until(is_so, what=f"{query} is {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}, it is {found}") from None
