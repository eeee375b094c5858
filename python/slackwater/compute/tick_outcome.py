"""The values that a tick returns, and the meter by which it measures itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from slackwater.compute.records import StepRecord
from slackwater.persist.client import Append
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp


@dataclass(slots=True)
class TickMeter:
    """Counts what one tick, or one hydration, has cost so far.

    The thread of the tick writes it; other threads may read `scanned` at any time.
    """

    monotonic: Callable[[], float] = time.monotonic
    """Returns seconds."""
    scanned: int = field(default=0, init=False)
    """Rows that were read whole, and those that the step in progress is about to read so."""
    plan_us: int = field(default=0, init=False)
    load_us: int = field(default=0, init=False)
    encode_us: int = field(default=0, init=False)
    """Microseconds, as `slackwater.compute.records.TickTimes` divides them."""

    def restart(self) -> None:
        """Forgets what was counted: a tick over another interval begins."""
        self.scanned = self.plan_us = self.load_us = self.encode_us = 0

    def us_since(self, began_s: float) -> int:
        """The microseconds since `monotonic` returned `began_s`."""
        return int((self.monotonic() - began_s) * 1_000_000)


@dataclass(frozen=True, slots=True)
class Followed:
    """The updates of a program's output from the tick's lower up to `upper`, and its steps.

    The columns are those of the output by their position, time and diff. The driver took `took_us`.
    """

    updates: pa.Table
    upper: Timestamp
    steps: tuple[StepRecord, ...]
    took_us: int


@dataclass(frozen=True, slots=True)
class Computed:
    """The updates of a view's rows, and the steps that computed them.

    `by_program`: they are those of a tick of the program.
    """

    rows: Append
    steps: tuple[StepRecord, ...] = ()
    by_program: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """The updates that a subscription gives to who follows it, or the reason why it ends.

    `updates` have the columns of `Followed`; None: there are none.
    """

    updates: pa.Table | None = None
    error: str | None = None

    @property
    def rows(self) -> int:
        """The number of updates."""
        return 0 if self.updates is None else self.updates.num_rows


@dataclass(frozen=True, slots=True)
class TickOutcome:
    """The result of one tick. Nothing of it is committed.

    `appends` are those of a view's rows and of its errors; an index and a subscription have none.
    They cover the same interval, which begins where the tick does and may end before it, at
    `upper`: another tick does the rest. `out_of_memory`: why the program keeps nothing of what it
    looks up; None: it does, or the view has no program. `given` is of a subscription.
    """

    appends: tuple[Append, ...]
    upper: Timestamp
    steps: tuple[StepRecord, ...]
    by_program: bool
    out_of_memory: SlackwaterError | None
    given: Given | None = None

    @property
    def emitted(self) -> int:
        """The number of updates of the output's rows."""
        if self.given is not None:
            return self.given.rows
        return sum(part.rows for append in self.appends[:1] for part in append.parts)
