"""The election: a candidate leads, joins, waits, or is refused. No clock, no I/O.

A leader has gone when it has given its lease up, when its process on this host is dead, or when its
lease has run out: the candidate has seen it unchanged for its length, by the candidate's own clock.
A leader that the candidate cannot reach may live. Source: surface 7, decision 0014.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slackwater.persist.leadership import LeaderRecord

OPENING_MS = 45_000
"""Milliseconds that a living leader may take to answer, since it may be opening the environment."""


class Decision(Enum):
    """The next action of a candidate. FIRST to UNLEASED are reasons to take the lead."""

    FIRST = "nobody has led"
    GIVEN_UP = "the lease was given up"
    DEAD = "the leader's process is dead"
    RUN_OUT = "the lease has run out"
    UNLEASED = "the leader has no lease and does not answer"
    JOIN = "the leader answers"
    WAIT = "the leader may live"
    REFUSED = "the leader lives and cannot be reached"


@dataclass(frozen=True, slots=True)
class LeaderObservation:
    """The leader on record, as a candidate sees it.

    `answers`: it has answered at its address. `reachable`: its address can be reached from this
    host, and by this user. `dead`: its process has certainly ended.
    """

    leader: LeaderRecord | None
    answers: bool = False
    reachable: bool = False
    dead: bool = False


class Election:
    """The observations of one candidate so far."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._seen_ms = 0
        self._lives = False
        self._met: int | None = None
        self._met_ms = 0

    def decide(self, observation: LeaderObservation, now_ms: int) -> Decision:
        """Decides the next action. `now_ms`: a monotonic time after the metastore was read."""
        leader = observation.leader
        if leader is None:
            return Decision.FIRST
        if observation.dead:
            return Decision.DEAD
        if leader.lease is None and leader.is_leased:
            return Decision.GIVEN_UP
        if observation.answers:
            return Decision.JOIN
        if leader.lease is None:
            # A leader of before there were leases: it is alive if it answers, as it was then.
            return Decision.UNLEASED
        self._look_at(leader.epoch, leader.lease.renewals, now_ms)
        if now_ms - self._seen_ms >= leader.lease.lease_ms:
            return Decision.RUN_OUT
        unanswered_ms = now_ms - self._met_ms
        if self._lives and (not observation.reachable or unanswered_ms >= OPENING_MS):
            return Decision.REFUSED
        return Decision.WAIT

    def _look_at(self, epoch: int, renewals: int, now_ms: int) -> None:
        if self._met != epoch:
            self._met, self._met_ms, self._lives = epoch, now_ms, False
            self._seen = None
        if self._seen != (epoch, renewals):
            self._lives = self._seen is not None
            self._seen, self._seen_ms = (epoch, renewals), now_ms
