"""Tables of a topic whose messages are read again, beside what the tables have meanwhile.

A copy of all messages takes the place of the table's envelope at a step at whose frontier it is
whole: that step has the difference. A copy that fails is begun again, as long as somebody waits.

Source: docs/decisions 0073, 0069.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from slackwater.storage.ingestion import Resnapshot
from slackwater.storage.kafka.copying import Copy
from slackwater.storage.kafka.envelopes import Envelope


@dataclass(slots=True)
class _Asked:
    """A request for tables, of which those of `left` are not read again yet."""

    left: set[str]
    done: Resnapshot
    has_begun: bool = False


class Rereading:
    """The requests to read tables again, and the copies for them."""

    def __init__(self) -> None:
        self.copies: dict[str, Copy] = {}
        self._asked: list[_Asked] = []
        self._placed: set[str] = set()

    @property
    def has_placed(self) -> bool:
        """Whether the next step has what a copy has read."""
        return bool(self._placed)

    def ask(self, names: frozenset[str]) -> Resnapshot:
        """Reads these tables again. Any thread may call this."""
        asked = _Asked(set(names), Resnapshot())
        self._asked.append(asked)
        return asked.done

    def follow(
        self,
        exports: Mapping[str, Envelope],
        begins: Collection[str],
        copy: Callable[[str, Envelope], Copy],
    ) -> None:
        """Begins the copies that are asked for, and ends those of tables that are gone.

        `exports` are the tables that there are, `begins` those whose first copy is on its way.
        """
        for name in [each for each in self.copies if each not in exports]:
            self.copies.pop(name).close()
        for asked in list(self._asked):
            asked.left &= exports.keys() | set(begins)
            if not asked.has_begun:
                # What is on its way may have passed what it is to read.
                for name in asked.left & self.copies.keys():
                    self.copies.pop(name).close()
                self._placed -= asked.left
                asked.has_begun = True
            for name in asked.left & exports.keys() - self.copies.keys() - self._placed:
                self.copies[name] = copy(name, exports[name].anew())
        self._tell()

    def place(self, name: str) -> None:
        """The copy of the table is whole, and its envelope is that of the table from now on."""
        self._placed.add(name)

    def abandoned(self) -> None:
        """Leaves what was placed since the last step out of the next one."""
        self._placed.clear()

    def committed(self, joined: Collection[str]) -> None:
        """The step is durable, which has what was placed, and the first contents of `joined`."""
        for asked in self._asked:
            if asked.has_begun:
                asked.left -= self._placed | set(joined)
        self._placed.clear()
        self._tell()

    def close(self) -> None:
        """Ends what copies have open."""
        for copy in self.copies.values():
            copy.close()

    def _tell(self) -> None:
        for asked in list(self._asked):
            if asked.has_begun and not asked.left:
                asked.done.done.set()
                self._asked.remove(asked)
