"""Who leads: the lease in the metastore, who may take it, and when its owner stops acting on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from sqlalchemy import select, text, update
from tests.support.applications.stopped import stopped
from tests.support.persist.persistence import acquired
from tests.support.persist.postgres import running_server
from tests.support.waiting import PATIENCE, wait_until

from slackwater.persist.leadership import (
    Fenced,
    LeaderRecord,
    Lease,
    LostElection,
    Owner,
    current_leader,
    give_up,
    renew,
)
from slackwater.persist.metastore import RetryPolicy, connect, query, transaction
from slackwater.persist.tables import environment
from slackwater.repr.errors import SlackwaterError
from slackwater.server.election import OPENING_MS, Decision, Election, LeaderObservation
from slackwater.server.identity import end, is_dead, is_near, started, this_process
from slackwater.server.leader_lease import LeaderLease

OWNER = Owner("ebb", "boot-1", "pid:[1]", "ada", 4711, "17")
LEASE = Lease(OWNER, 10_000)
UNSEEN: tuple[dict[str, str], ...] = (
    {"host": "elsewhere"},
    {"boot": "another"},
    {"boot": ""},
    {"pid_namespace": "pid:[1]"},
    {"user": "somebody"},
)
"""What of an owner says that its process cannot be seen here."""


def lead(env, expected_epoch=None, **options):
    return acquired(env.engine, expected_epoch, **options)


# The record


def test_the_lease_is_on_record_with_host_user_and_process(env):
    lead(env, lease=LEASE)
    leader = current_leader(env.engine)
    assert (leader.epoch, leader.lease, leader.is_leased) == (1, LEASE, True)
    renew(env.engine, 1)
    assert current_leader(env.engine).lease == replace(LEASE, renewals=1)


def test_a_lease_that_was_renewed_is_not_taken(env):
    lead(env, lease=LEASE)
    seen = current_leader(env.engine).lease.renewals
    renew(env.engine, 1)
    with pytest.raises(LostElection):
        lead(env, 1, expected_renewals=seen, lease=LEASE)
    with pytest.raises(LostElection):
        lead(env, 1, lease=LEASE)
    renew(env.engine, 1)
    assert lead(env, 1, expected_renewals=2, lease=LEASE) == 2
    with pytest.raises(Fenced):
        renew(env.engine, 1)
    renew(env.engine, 2)


def test_a_lease_that_was_given_up_is_taken_at_once(env):
    lead(env, lease=LEASE)
    renew(env.engine, 1)
    give_up(env.engine, 1)
    leader = current_leader(env.engine)
    assert (leader.epoch, leader.lease, leader.is_leased) == (1, None, True)
    assert lead(env, 1, lease=LEASE) == 2
    give_up(env.engine, 1)
    assert current_leader(env.engine).lease == LEASE


@pytest.mark.postgres
def test_a_renewal_under_way_and_a_takeover_exclude_each_other(postgres, tmp_path):
    from tests.support.persist.persistence import new_environment

    env = new_environment(postgres.new_database(), tmp_path)
    lead(env, lease=LEASE)
    outcome = []

    def take_over():
        try:
            outcome.append(lead(env, 1, expected_renewals=0, lease=LEASE))
        except LostElection as lost:
            outcome.append(lost)

    with env.engine.connect() as conn:
        conn.execute(text("UPDATE leader_leases SET renewals = renewals + 1"))
        candidate = threading.Thread(target=take_over)
        candidate.start()
        wait_until(lambda: waiters(env), what="the candidate waits for the renewal")
        conn.commit()
    candidate.join(PATIENCE)
    assert [type(found) for found in outcome] == [LostElection]
    env.engine.dispose()


def waiters(env):
    statement = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return query(env.engine, lambda conn: conn.execute(statement).scalar_one())


# Whether a process has ended


def test_only_the_same_user_on_the_same_host_knows_that_a_process_is_dead():
    here = this_process()
    assert here.started
    assert not is_dead(here, here, started)
    ended = replace(here, pid=2**22 + 1)
    assert is_dead(ended, here, started)
    assert is_dead(replace(here, started="0"), here, started), "the number was used again"
    for other in UNSEEN:
        assert not is_dead(replace(ended, **other), here, started)
    assert is_near(replace(ended, user="somebody"), here)
    assert not is_near(replace(ended, boot="another"), here)


def test_a_process_that_was_killed_and_one_that_is_stopped():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = started(child.pid)
    assert began is not None
    os.kill(child.pid, signal.SIGSTOP)
    assert started(child.pid) == began
    os.kill(child.pid, signal.SIGKILL)
    # It is a zombie until its parent asks for it.
    wait_until(lambda: started(child.pid) is None, what="the child's end")
    child.wait()
    assert started(child.pid) is None
    child.stdin.close()


def test_a_process_that_hangs_is_ended_if_it_is_certain_which_one_it_is():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    owner = replace(here, pid=child.pid, started=started(child.pid))
    with stopped([child.pid]):
        for other in (
            *UNSEEN,
            {"started": "0"},
            {"started": ""},
            {"pid": 2**22 + 1},
        ):
            assert not end(replace(owner, **other), here)
        assert not end(here, here)
        assert started(child.pid) == owner.started
        assert end(owner, here)
        assert child.wait(PATIENCE) == -signal.SIGKILL
    assert not end(owner, here)
    child.stdin.close()


# The candidate


def observation(renewals=0, *, epoch=1, **seen):
    lease = replace(LEASE, renewals=renewals)
    return LeaderObservation(
        LeaderRecord(epoch, "http://a", "/t", "app", "/l", lease, True), **seen
    )


def test_nobody_leads_or_the_leader_has_gone():
    assert Election().decide(LeaderObservation(None), 0) is Decision.FIRST
    assert Election().decide(observation(dead=True, reachable=True), 0) is Decision.DEAD
    given_up = LeaderRecord(3, "http://a", "/t", "app", "/l", None, True)
    assert (
        Election().decide(LeaderObservation(given_up, reachable=True, answers=True), 0)
        is Decision.GIVEN_UP
    )


def test_a_leader_from_before_the_leases_lives_if_it_answers():
    before = LeaderRecord(3, "http://a", "/t", "app", "/l", None, False)
    assert (
        Election().decide(LeaderObservation(before, answers=True, reachable=True), 0)
        is Decision.JOIN
    )
    assert Election().decide(LeaderObservation(before), 0) is Decision.UNLEASED


def test_a_leader_that_answers_is_joined():
    assert Election().decide(observation(answers=True, reachable=True), 0) is Decision.JOIN


@pytest.mark.parametrize("reachable", [False, True])
def test_a_lease_runs_out_by_the_candidates_own_clock(reachable):
    election = Election()
    for now in (1_000, 5_000, 10_999):
        assert election.decide(observation(7, reachable=reachable), now) is Decision.WAIT
    assert election.decide(observation(7, reachable=reachable), 11_000) is Decision.RUN_OUT


def test_a_leader_elsewhere_that_renews_is_never_replaced():
    election = Election()
    assert election.decide(observation(7), 0) is Decision.WAIT
    assert election.decide(observation(7), 9_999) is Decision.WAIT
    assert election.decide(observation(8), 10_001) is Decision.REFUSED


def test_a_leader_here_that_renews_and_does_not_answer_may_be_opening():
    election = Election()
    for number in range(OPENING_MS // 3_000):
        assert election.decide(observation(number, reachable=True), number * 3_000) is Decision.WAIT
    assert election.decide(observation(99, reachable=True), OPENING_MS) is Decision.REFUSED


def test_a_new_leader_is_watched_anew():
    election = Election()
    assert election.decide(observation(7), 0) is Decision.WAIT
    assert election.decide(observation(0, epoch=2), 9_000) is Decision.WAIT
    assert election.decide(observation(0, epoch=2), 18_999) is Decision.WAIT
    assert election.decide(observation(0, epoch=2), 19_000) is Decision.RUN_OUT


# The leader


class Clock:
    def __init__(self):
        self.now_ms = 0

    def __call__(self):
        return self.now_ms


def leader_lease(env, clock, *, lease_ms=10_000, lost=None):
    epoch = lead(env, lease=replace(LEASE, lease_ms=lease_ms))
    notes = [] if lost is None else lost
    return LeaderLease(
        env.engine, epoch, lease_ms, acquired_ms=0, on_lost=notes.append, clock_ms=clock
    )


def test_the_leader_stops_before_anybody_can_take_its_lease(env):
    clock = Clock()
    held = leader_lease(env, clock)
    clock.now_ms = 8_999
    held.confirm(0)
    clock.now_ms = 9_000
    with pytest.raises(SlackwaterError) as refused:
        held.confirm(0)
    assert refused.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"


def test_the_leader_goes_on_with_a_lease_that_nobody_took(env):
    clock = Clock()
    held = leader_lease(env, clock, lease_ms=300)
    clock.now_ms = 10_000
    held.start()
    held.confirm(int(PATIENCE * 1000))
    renewed = current_leader(env.engine).lease.renewals
    wait_until(lambda: current_leader(env.engine).lease.renewals > renewed, what="a renewal")
    held.stop()
    held.give_up()
    assert current_leader(env.engine).lease is None


def test_a_leader_whose_lease_was_taken_says_so(env):
    clock, lost = Clock(), []
    held = leader_lease(env, clock, lease_ms=300, lost=lost)
    lead(env, 1, expected_renewals=0, lease=LEASE)
    held.start()
    wait_until(lambda: lost, what="the leader notices")
    with pytest.raises(Fenced):
        held.confirm(0)
    held.stop()
    held.give_up()
    assert current_leader(env.engine).lease == LEASE, "the lease of the other stays"


# A metastore that hangs


@pytest.mark.postgres
def test_a_server_process_that_hangs_counts_as_away(postgres, tmp_path):
    from tests.support.persist.persistence import new_environment

    env = new_environment(postgres.new_database(), tmp_path)
    patient = connect(env.url, silence_ms=1_000)
    backend = query(patient, lambda conn: conn.scalar(text("SELECT pg_backend_pid()")))
    with stopped([backend]):
        with pytest.raises(SlackwaterError) as refused:
            query(patient, lambda conn: conn.scalar(text("SELECT 1")), retry_policy=RetryPolicy(0))
        assert refused.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
        assert "silent for 1 s" in refused.value.message
        # Another connection has another process of the server.
        assert query(patient, lambda conn: conn.scalar(text("SELECT 2"))) == 2
    patient.dispose()
    env.engine.dispose()


@pytest.mark.postgres
def test_a_server_that_hangs_as_a_whole_counts_as_away(tmp_path):
    with running_server() as server:
        engine = connect(server.new_database(), silence_ms=1_000)
        with stopped(server.processes), pytest.raises(SlackwaterError) as refused:
            query(engine, lambda conn: conn.scalar(text("SELECT 1")), retry_policy=RetryPolicy(0))
        assert refused.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
        assert query(engine, lambda conn: conn.scalar(text("SELECT 2"))) == 2
        engine.dispose()


@pytest.mark.postgres
def test_a_leader_that_hangs_within_a_transaction_keeps_no_locks(postgres, tmp_path):
    from tests.support.persist.persistence import new_environment

    env = new_environment(postgres.new_database(), tmp_path)
    hung = connect(env.url, silence_ms=2_000)

    def oversleeps(conn):
        conn.execute(update(environment).values(tables_upper=7))
        assert lead(env) == 1
        conn.execute(select(environment))

    with pytest.raises(SlackwaterError) as refused:
        transaction(hung, oversleeps, retry_policy=RetryPolicy(0))
    assert refused.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
    assert current_leader(env.engine).epoch == 1
    hung.dispose()
    env.engine.dispose()


@pytest.mark.postgres
def test_a_lease_is_renewed_past_a_server_process_that_hangs(postgres, tmp_path):
    from tests.support.persist.persistence import new_environment

    env = new_environment(postgres.new_database(), tmp_path)
    own = connect(env.url, silence_ms=2_000)
    lead(env, lease=replace(LEASE, lease_ms=6_000))
    held = LeaderLease(own, 1, 6_000, acquired_ms=0, on_lost=lambda _: None, clock_ms=lambda: 0)
    backend = query(own, lambda conn: conn.scalar(text("SELECT pg_backend_pid()")))
    with stopped([backend]):
        held.start()
        wait_until(lambda: current_leader(env.engine).lease.renewals > 0, what="a renewal")
    held.stop()
    held.give_up()
    own.dispose()
    env.engine.dispose()
