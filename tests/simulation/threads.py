"""Threads that take turns, and a clock that only moves when they wait.

The threads are real, but only the one whose turn it is runs. It gives its turn up when it waits for
a lock, a condition, an event, another thread or a time, and at the places where the simulation says
so. Who is next is drawn from a seed. The clock stands still while a thread runs; when none can, it
jumps to the first time that somebody waits for.

`install` puts this in the place of `threading`, `time` and `uuid4`. It has to come before the
modules that take names from there: a process is simulated as a whole or not at all.
"""

from __future__ import annotations

import _thread
import hashlib
import queue
import random
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

START_NS = 1_700_000_000 * 10**9
SWITCH_RATE = 0.3
"""How often a thread that could go on gives its turn up, where it may."""
SWITCHES = 200_000
"""A run with more of them does not end by itself."""


class Failed(Exception):
    """The run has shown something that must not be."""


class Ended(BaseException):
    """What a thread works for has ended, and it does not go on."""


@dataclass(eq=False, slots=True)
class Process:
    """A process of the simulation: its threads end together, at once.

    `host`: it lives in that one, and shares its memory: it ends with it. When it ends alone, each
    of its threads ends where it comes to a boundary, so that what it has locked is free again.
    `pause_s`: it is slow, and works for so long at most where others need no time.
    """

    name: str
    alive: bool = True
    host: Process | None = None
    pause_s: float = 0.0

    @property
    def whole(self) -> Process:
        """The process whose memory it is in."""
        return self if self.host is None else self.host


@dataclass(eq=False, slots=True)
class Turn:
    """A thread as the scheduler sees it: it can go on when `ready` holds, or at the deadline."""

    name: str
    process: Process | None
    ready: Callable[[], bool]
    deadline_ns: int | None = None
    ended: bool = False
    ident: int | None = None
    baton: Any = field(default_factory=_thread.allocate_lock)


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class Scheduler:
    """Who runs, what time it is, and what has happened. Without a run nobody can wait."""

    def __init__(self) -> None:
        self.begin(0)
        self._running: Turn | None = None

    def begin(self, seed: int, hidden: str = "") -> None:
        """Forgets all threads and begins anew: the calling thread is the only one.

        `hidden` is left out of the trace, because it differs from run to run.
        """
        self._hidden = hidden
        self.rng = random.Random(seed)
        self._ids = random.Random(seed)
        self.now_ns = 0
        self.skew_ns = 0
        self.log: list[str] = []
        self.switches = 0
        self._digest = hashlib.sha256()
        self._failure: Failed | None = None
        self._names: dict[str, int] = {}
        self._main = self._running = Turn("main", None, _always, ident=_thread.get_ident())
        self._main.baton.acquire()
        self._turns = [self._main]

    def end(self) -> None:
        """The run is over: what happens until the next one begins is nobody's turn."""
        self._running = None
        self._turns = []

    # What happened

    def note(self, text: str) -> None:
        """Adds an event to the trace."""
        who = self._running.name if self._running else "-"
        shown = text.replace(self._hidden, "") if self._hidden else text
        line = f"{self.now_ns / 1e6:12.3f} ms  {who:<24} {shown}"
        self.log.append(line)
        self._digest.update(line.encode())

    def digest(self) -> str:
        """Of two runs it is the same if and only if they went the same way, turn by turn."""
        return self._digest.hexdigest()[:16]

    def fail(self, reason: str) -> None:
        """Ends the run: the main thread raises `Failed`, the others do not go on."""
        self.note(f"FAILED {reason}")
        if self._failure is None:
            self._failure = Failed(reason)
            self._main.ready, self._main.deadline_ns = _always, None
        if self._running is self._main:
            raise self._failure
        self._turns = [self._main]
        self._switch()

    # Time

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def time_ns(self) -> int:
        """The wall clock, which may jump."""
        return START_NS + self.now_ns + self.skew_ns

    def time(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self.wait(_never, seconds)

    def new_id(self) -> uuid.UUID:
        """`uuid.uuid4`: names of files are part of the trace."""
        return uuid.UUID(int=self._ids.getrandbits(128), version=4)

    # Turns

    @property
    def process(self) -> Process | None:
        """Whose thread runs."""
        return self._running.process if self._running else None

    def spawn(self, name: str, process: Process | None, action: Callable[[], object]) -> Turn:
        """A new thread, which can run from now on."""
        number = self._names[name] = self._names.get(name, 0) + 1
        turn = Turn(f"{process.name if process else 'world'}/{name}#{number}", process, _always)
        turn.baton.acquire()
        self._turns.append(turn)

        def run() -> None:
            turn.baton.acquire()
            turn.ident = _thread.get_ident()
            try:
                action()
            except Ended:
                pass
            except BaseException:
                self.fail(f"{turn.name} died:\n{traceback.format_exc()}")
            turn.ended = True
            self._turns.remove(turn)
            self._switch()

        _thread.start_new_thread(run, ())
        return turn

    def kill(self, process: Process) -> None:
        """Ends the process as it is: nothing of it runs any more, not even what tidies up."""
        process.alive = False
        self._turns = [turn for turn in self._turns if not self._is_of(turn, process)]
        if self._running is not None and self._is_of(self._running, process):
            # It is never this thread's turn again.
            self._switch()

    @staticmethod
    def _is_of(turn: Turn, process: Process) -> bool:
        return turn.process is not None and turn.process.whole is process

    def wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Gives the turn up until `ready`; False: the time went by first."""
        turn = self._running
        if turn is None:
            if not ready():
                raise RuntimeError("nobody else runs: this would wait for ever")
            return True
        turn.ready = ready
        if timeout_s is not None:
            turn.deadline_ns = self.now_ns + max(0, int(timeout_s * 1e9))
        self._switch()
        if turn is self._main and self._failure is not None:
            raise self._failure
        reached = turn.ready()
        turn.ready, turn.deadline_ns = _always, None
        return reached

    def pause(self) -> None:
        """A place where another thread may go on first."""
        if self._running is None:
            return
        self.now_ns += self.rng.randrange(1_000, 50_000)
        if self.rng.random() < SWITCH_RATE:
            self.wait(_always)

    def _switch(self) -> None:
        """The turn goes to a thread that can use it. Returns when it comes back."""
        before = self._running
        assert before is not None
        chosen = self._running = self._chosen()
        self.switches += 1
        self._digest.update(chosen.name.encode())
        if chosen is not before:
            chosen.baton.release()
            if not before.ended:
                before.baton.acquire()

    def _chosen(self) -> Turn:
        while self._failure is None:
            if self.switches > SWITCHES:
                self._failure = Failed(f"no end after {SWITCHES} turns\n{self.stacks()}")
                break
            able = [turn for turn in self._turns if self._is_able(turn)]
            if able:
                return self.rng.choice(able)
            times = [turn.deadline_ns for turn in self._turns if turn.deadline_ns is not None]
            if not times:
                self._failure = Failed(f"deadlock\n{self.stacks()}")
                break
            self.now_ns = max(self.now_ns, min(times))
        self._turns = [self._main]
        return self._main

    def _is_able(self, turn: Turn) -> bool:
        late = turn.deadline_ns is not None and turn.deadline_ns <= self.now_ns
        return late or turn.ready()

    def stacks(self) -> str:
        """Where each thread is."""
        frames = sys._current_frames()
        return "\n".join(
            f"--- {turn.name}\n" + "".join(traceback.format_stack(frames[turn.ident])[-8:])
            for turn in self._turns
            if turn.ident in frames
        )

    def current(self) -> Turn | None:
        return self._running


class Lock:
    """`threading.Lock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._scheduler.pause()
        if self._held:
            limit = None if timeout < 0 else timeout
            if not blocking or not self._scheduler.wait(lambda: not self._held, limit):
                return False
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def locked(self) -> bool:
        return self._held

    def _at_fork_reinit(self) -> None:
        self._held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """`threading.RLock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._is_owned():
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = self._scheduler.current()
        self._count += 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is self._scheduler.current()

    def _at_fork_reinit(self) -> None:
        self._count, self._owner = 0, None
        self._lock._at_fork_reinit()

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """`threading.Condition`."""

    def __init__(self, scheduler: Scheduler, lock: Any = None) -> None:
        self._scheduler = scheduler
        self._lock = RLock(scheduler) if lock is None else lock
        self._waiters: list[list[bool]] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiters.append(told)
        if isinstance(self._lock, RLock):
            count = self._lock._release_save()
        else:
            self._lock.release()
        reached = self._scheduler.wait(lambda: told[0], timeout)
        self._waiters = [waiter for waiter in self._waiters if waiter is not told]
        if isinstance(self._lock, RLock):
            self._lock._acquire_restore(count)
        else:
            self._lock.acquire()
        return reached

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._scheduler.monotonic() + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._scheduler.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        told, self._waiters = self._waiters[:n], self._waiters[n:]
        for waiter in told:
            waiter[0] = True

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Event:
    """`threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.pause()
        return self._set or self._scheduler.wait(self.is_set, timeout)


class Thread:
    """`threading.Thread`."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._action = partial(target or _always, *args, **(kwargs or {}))
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._turn: Turn | None = None

    def start(self) -> None:
        self._turn = self._scheduler.spawn(self.name, self._scheduler.process, self.run)
        self._scheduler.pause()

    def run(self) -> None:
        self._action()

    @property
    def ident(self) -> int | None:
        return self._turn and self._turn.ident

    def is_alive(self) -> bool:
        return self._turn is not None and not self._turn.ended

    def join(self, timeout: float | None = None) -> None:
        turn = self._turn
        if turn is None:
            raise RuntimeError("cannot join thread before it is started")
        self._scheduler.wait(lambda: turn.ended, timeout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thread) and other._turn is self._turn

    __hash__ = object.__hash__


def install(scheduler: Scheduler) -> None:
    """Gives the whole process the threads, the clock and the chance of `scheduler`."""

    class SimulatedThread(Thread):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(scheduler, *args, **kwargs)

    def current_thread() -> Thread:
        turn = scheduler.current()
        thread = SimulatedThread(name="MainThread" if turn is None else turn.name)
        thread._turn = turn
        return thread

    for primitive in (Lock, RLock, Condition, Event):
        setattr(threading, primitive.__name__, partial(primitive, scheduler))
    threading.Thread = SimulatedThread  # type: ignore[misc, assignment]
    threading.current_thread = current_thread  # type: ignore[assignment]
    # The other one waits where nobody can take its turn.
    queue.SimpleQueue = queue.Queue  # type: ignore[misc, assignment]
    for name in ("monotonic", "monotonic_ns", "time", "time_ns", "sleep"):
        setattr(time, name, getattr(scheduler, name))
    uuid.uuid4 = scheduler.new_id
