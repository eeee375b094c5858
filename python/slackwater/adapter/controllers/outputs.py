"""The stored outputs of dataflows, in the shards of the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slackwater.adapter.catalog.model import CatalogState
from slackwater.compute.controller.effects import CommitOutput
from slackwater.compute.controller.shell import OutputRefusal
from slackwater.compute.staged_parts import parts_of
from slackwater.persist.client import Append, PersistClient, UnknownShard, UpperMismatch
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class StoredOutputs:
    """`slackwater.compute.controller.shell.OutputStore` over shards. Thread-safe."""

    persist: PersistClient
    state: Callable[[], CatalogState]

    def append(self, outputs: Sequence[CommitOutput]) -> None:
        """One commit of the rows and the errors of all outputs.

        Raises OutputRefusal, and what `Commits.commit` raises.
        """
        state = self.state()
        try:
            self.persist.commits.commit(
                [append for each in outputs for append in _appends(each, state)]
            )
        except (UpperMismatch, UnknownShard) as error:
            raise OutputRefusal(str(error)) from error

    def upper(self, target: GlobalId) -> Frontier | None:
        """The upper of the rows' shard."""
        item = self.state().items.get(target)
        if item is None:
            return None
        try:
            return Frontier(self.persist.reads.state(item.stored.shard_id).upper)
        except UnknownShard:
            return None


def _appends(output: CommitOutput, state: CatalogState) -> Iterator[Append]:
    item = state.items.get(output.target)
    if item is None or item.stored.errors_shard is None:
        raise OutputRefusal(f"there is no view {output.target}")
    lower, upper = Timestamp(output.lower.value), Timestamp(output.upper.value)
    yield Append(item.stored.shard_id, lower, upper, parts_of(output.rows))
    yield Append(item.stored.errors_shard, lower, upper, parts_of(output.errors))
