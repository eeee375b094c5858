"""Identifiers of objects.

``uN`` a user's object, ``sN`` a system relation, ``siN`` the index of an introspection source,
``tN`` a transient collection, and one id that stands for an explained query. An id is never reused.
The order of ids is not an order of dependencies. Source: spec controllers 1.1, coordinator 4.2.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NewType

GlobalId = NewType("GlobalId", str)

_FORM = re.compile(r"(u|si|s|t)(0|[1-9][0-9]*)")


class IdFamily(Enum):
    """The kind of object that an id names, by its prefix."""

    SYSTEM = "s"
    INTROSPECTION_SOURCE_INDEX = "si"
    USER = "u"
    TRANSIENT = "t"
    EXPLAIN = "explained"


EXPLAINED_QUERY = GlobalId("explained")
"""The only id of its family: a query that is explained and never runs."""


def user_id(number: int) -> GlobalId:
    return GlobalId(f"u{number}")


def system_id(number: int) -> GlobalId:
    return GlobalId(f"s{number}")


def introspection_source_index_id(number: int) -> GlobalId:
    return GlobalId(f"si{number}")


def transient_id(number: int) -> GlobalId:
    """The id of an interactive object; numbers start at 1."""
    if number < 1:
        raise ValueError("the numbers of transient ids start at 1")
    return GlobalId(f"t{number}")


def family(global_id: GlobalId) -> IdFamily:
    """The family of the id. Raises ValueError for what is no id."""
    if global_id == EXPLAINED_QUERY:
        return IdFamily.EXPLAIN
    match = _FORM.fullmatch(global_id)
    if match is None:
        raise ValueError(f"{global_id!r} is no id of an object")
    return IdFamily(match[1])


def is_system(global_id: GlobalId) -> bool:
    return global_id.startswith("s")


def is_user(global_id: GlobalId) -> bool:
    return global_id.startswith("u")


def is_transient(global_id: GlobalId) -> bool:
    return global_id.startswith("t")
