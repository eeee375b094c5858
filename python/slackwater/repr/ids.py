"""Identifiers of objects.

``uN`` a user's object, ``sN`` a system relation, ``siN`` the index of an introspection source,
``tN`` a transient collection. An id is never reused.
The order of ids is not an order of dependencies. Source: spec controllers 1.1, coordinator 4.2.
"""

from __future__ import annotations

from typing import NewType

GlobalId = NewType("GlobalId", str)


def user_id(number: int) -> GlobalId:
    return GlobalId(f"u{number}")


def system_id(number: int) -> GlobalId:
    return GlobalId(f"s{number}")


def introspection_source_index_id(number: int) -> GlobalId:
    return GlobalId(f"si{number}")


def is_system(global_id: GlobalId) -> bool:
    return global_id.startswith("s")


def is_user(global_id: GlobalId) -> bool:
    return global_id.startswith("u")


def is_transient(global_id: GlobalId) -> bool:
    return global_id.startswith("t")
