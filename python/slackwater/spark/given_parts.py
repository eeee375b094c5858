"""Inline parts on their way to the driver, and the memory of those that it was given."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.compute.engine import NamedUpdates
from slackwater.compute.relations import file_json, inline_text
from slackwater.persist.parts import FileBody, InlineBody, Part

REMEMBERED = 10_000
"""So many parts are known to be given; an older one is given again."""


@dataclass(slots=True)
class GivenParts:
    """Remembers which inline parts the driver was given. Thread-safe.

    A part is given once, whatever number of views read it, with the columns that any of them was
    seen to read. The driver may have forgotten it, or not have got it yet: then it asks for it, and
    for one that lacks a column. So nothing depends on what is remembered here but the number of
    bytes that are sent.
    """

    most: int = REMEMBERED
    bytes_given: int = field(default=0, init=False)
    """Characters of streams that were put into requests."""
    _given: OrderedDict[int, None] = field(default_factory=OrderedDict, init=False)
    _fields: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def sources_json(
        self, deltas: Mapping[str, NamedUpdates], asked: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        """Updates in the form in which the driver reads them.

        `asked`: the ids of parts that it has asked for.
        """
        return {name: self._updates_json(delta, asked) for name, delta in deltas.items()}

    def validate(self) -> None:
        """Raises AssertionError if more is remembered than may be."""
        with self._lock:
            assert len(self._given) <= self.most

    def _updates_json(self, view: NamedUpdates, asked: frozenset[int]) -> dict[str, Any]:
        fields = self._fields_of(view)
        parts: list[dict[str, Any]] = []
        for part in view.parts:
            entry: dict[str, Any] = {}
            if isinstance(part, Part):
                entry["id"] = part.part_id
            match part.body:
                case FileBody():
                    entry["file"] = file_json(part, part.body)
                case InlineBody(ipc):
                    is_known = isinstance(part, Part) and self._is_known(part.part_id)
                    if not is_known or entry["id"] in asked:
                        entry["inline"] = inline_text(ipc, view.desc, fields)
                        self._count(len(entry["inline"]))
            parts.append(entry)
        return {"name": view.name, "parts": parts, "lower": view.lower, "upper": view.upper}

    def _fields_of(self, view: NamedUpdates) -> frozenset[str]:
        """The columns of the collection that anybody was seen to read."""
        with self._lock:
            fields = self._fields.get(view.name, frozenset()) | view.fields
            self._fields[view.name] = fields
            return fields

    def _is_known(self, part_id: int) -> bool:
        """Whether the part is given, or is being given by the caller before; now it is."""
        with self._lock:
            known = part_id in self._given
            self._given[part_id] = None
            self._given.move_to_end(part_id)
            if len(self._given) > self.most:
                self._given.popitem(last=False)
            return known

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_given += size
