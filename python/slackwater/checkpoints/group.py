"""Checkpoint groups, as users of the package hold them. Source: spec checkpoint 2.2, 2.3, 2.5."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Thread
from types import TracebackType

import structlog

from slackwater.checkpoints.bounds import bounds
from slackwater.checkpoints.names import Schema, TableGroup, canonical, schema_of
from slackwater.checkpoints.options import GroupSettings, Option
from slackwater.checkpoints.store import GroupSubscription, Store
from slackwater.checkpoints.variable import Variable
from slackwater.checkpoints.wakeups import Wakeups
from slackwater.repr.hlc import ZERO, Range, Time

Bounds = Variable[Range]
"""The bounds of a group, as its user watches them."""

_log = structlog.get_logger("checkpoint")


class Checkpoints:
    """Starts groups whose checkpoints are in `store`.

    `monotonic` gives seconds, by which groups prune.
    """

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic

    def scan_for_target_schemas(self) -> list[Schema]:
        """The schemas whose groups have work left, and are to be started again.

        They are the names of the groups that have a checkpoint which is not applied. Raises
        ValueError when one of these is no name of a schema, and what the store raises.
        """
        return [schema_of(name) for name in self._store.pending()]

    def start(self, tables: TableGroup, bounds: Bounds, *options: Option) -> Group:
        """A group that keeps `bounds` up to date until it is closed.

        It has refreshed them when this returns, if the store could be reached: a store that cannot
        is tried again. Groups of one name, in any number of processes, are one group to the store.
        What is done by the value of `bounds` that is passed in stays done: its ``min`` never goes
        back. Raises ValueError for a name that is none.
        """
        settings = GroupSettings()
        for option in options:
            settings = option(settings)
        return Group(self._store, tables, bounds, settings, self._monotonic)


class Group:
    """The checkpoints of tables that are proposed and committed together. Thread-safe.

    With `advance` each partition says up to which time it has delivered everything, and with
    `commit` the user of the group says what is applied. The bounds tell what is left: everything up
    to and with ``min`` is done, and every partition has delivered everything before ``max``.
    `Checkpoints.start` makes groups.
    """

    def __init__(
        self,
        store: Store,
        tables: TableGroup,
        bounds: Bounds,
        settings: GroupSettings,
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._name = canonical(tables.name)
        self._bounds = bounds
        self._settings = settings
        self._monotonic = monotonic
        self._pruned_at_s = monotonic()
        self._wakeups = Wakeups()
        self._failure: Exception | None = None
        self._subscription: GroupSubscription | None = None
        if settings.is_streaming:
            self._subscription = store.listen(self._name, self._wakeups.call)
        self._refresh()
        self._thread = Thread(target=self._run, name=f"checkpoint-{self._name}", daemon=True)
        self._thread.start()

    def advance(self, partition: str, time: Time) -> None:
        """Records that the partition has delivered everything up to and with `time`.

        It is durable when this returns. Saying it again changes nothing. Other partitions do not
        matter. Raises `GoingBackwards` when the partition has said a later time before, ValueError
        for a name or a time that cannot be kept, and what the store raises.
        """
        if time < ZERO:
            raise ValueError(f"a partition cannot be complete up to {time}, before the epoch")
        self._store.advance(self._name, canonical(partition), time)
        self.refresh()

    def commit(self, done: Range) -> None:
        """Records that the checkpoints in ``[done.min, done.max)`` are applied, of all partitions.

        It is durable when this returns, and that of the group which is ``committed`` with it: no
        reader's bounds begin before that again. Checkpoints that do not exist, or are applied, are
        left alone. Whether anything was applied is not checked. Raises what the store raises.
        """
        self._store.commit(self._name, done)
        self.refresh()

    def ensure(self, partitions: Iterable[str]) -> None:
        """Declares partitions: the bounds wait for them from now on.

        One that is known already is left alone. A new one begins at ``1.0000000001``, applied; so
        nothing new is proposed until it has advanced to where the group has committed. What is
        committed stays so. Raises ValueError for what is no name, and what the store raises.
        """
        self._store.ensure(self._name, list(dict.fromkeys(map(canonical, partitions))))
        self.refresh()

    def refresh(self) -> None:
        """Lets the bounds be brought up to date soon; returns at once."""
        self._wakeups.call()

    @property
    def failure(self) -> Exception | None:
        """The error of the last refresh; None: it did not fail.

        A failed refresh leaves the bounds as they were, and is tried again at the next poll.
        """
        return self._failure

    def close(self) -> None:
        """Ends the refreshing. What the store has stays. Does nothing the second time."""
        if self._subscription is not None:
            self._subscription.close()
        self._wakeups.close()
        self._thread.join()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        while self._wakeups.wait(self._settings.poll_ms / 1000):
            self._refresh()
            self._prune_when_due()

    def _refresh(self) -> None:
        """Publishes the bounds. A store that fails leaves them as they are.

        CockroachDB Replicator publishes a range at zero then, as if nothing were committed.
        """
        try:
            state = self._store.state(self._name, self._settings.lookahead)
            # It is stored before anybody can see it, or another reader might see less later.
            reached = bounds(state.partitions, state.committed).min
            if reached > state.committed:
                self._store.raise_committed(self._name, reached)
        except Exception as error:
            self._failure = error
            _log.warning("refresh_failed", group=self._name, error=str(error))
            return
        self._failure = None
        self._bounds.update(lambda old: bounds(state.partitions, max(reached, old.min)))

    def _prune_when_due(self) -> None:
        now_s = self._monotonic()
        if (now_s - self._pruned_at_s) * 1000 < self._settings.prune_ms:
            return
        self._pruned_at_s = now_s
        try:
            self._store.prune(self._name)
        except Exception as error:
            _log.warning("pruning_failed", group=self._name, error=str(error))
