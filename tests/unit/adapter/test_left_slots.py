"""Replication slots that sources leave on their servers, and logs that servers keep for sources."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from tests.property.test_storage_postgres import World
from tests.support.storage.fake_postgres import FakeServer
from tests.support.waiting import wait_until

from slackwater.adapter.catalog.details import (
    ConnectionDetails,
    ConnectionSetting,
    PostgresDetails,
    PostgresSettings,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.sources.abandoned_slots import LeftSlot, forget, keep, left_slots
from slackwater.adapter.sources.slots import AbandonedSlot, SlotRemovals
from slackwater.adapter.system.notices import of_logs, of_slots
from slackwater.repr.errors import user_error
from slackwater.repr.ids import user_id
from slackwater.storage.postgres.ingestion import CHECK_MS, RETAINED_BYTES
from slackwater.storage.postgres.replication import RetainedLog

WAY = ConnectionDetails(
    "POSTGRES",
    (ConnectionSetting("HOST", ("h",)), ConnectionSetting("PASSWORD", (), user_id(3))),
    2,
)


def test_the_list_outlives_who_has_written_it(env):
    first = LeftSlot(user_id(1), "a.b.s", "p", "slackwater_x_u1", 2, user_id(7), WAY)
    second = replace(first, source=user_id(2))
    with env.engine.begin() as conn:
        keep(conn, first)
        keep(conn, second)
        keep(conn, first)  # a transaction may be repeated
    with env.engine.begin() as conn:
        assert sorted(left_slots(conn), key=lambda each: each.source) == [first, second]
        forget(conn, user_id(1))
        assert left_slots(conn) == (second,)


def test_a_slot_waits_with_its_reason_until_it_is_removed(monkeypatch):
    monkeypatch.setattr("slackwater.adapter.sources.slots.FIRST_PAUSE_S", 0.01)
    away, running, tries = True, {user_id(1)}, []

    def remove():
        tries.append(None)
        if away:
            raise user_error(
                "SLACKWATER_SOURCE_UNREACHABLE",
                objectName="s",
                upstream="the publication p",
                connectionName="pg",
                reason="it is away",
            )

    removals = SlotRemovals(running.__contains__, lambda: 77)
    slot = AbandonedSlot(user_id(1), "slackwater_x_u1", 2, remove)
    removals.add(slot)
    removals.add(slot)
    (waiting,) = removals.waiting()
    assert (waiting.reason, waiting.since_ms, tries) == (None, 77, [])
    assert list(of_slots(removals.waiting())) == []
    running.clear()
    removals.stopped()
    wait_until(lambda: removals.waiting()[0].reason is not None, what="it was tried")
    (notice,) = of_slots(removals.waiting())
    assert "slackwater_x_u1 of a source that was dropped is not removed: " in notice.message
    assert "it is away" in notice.message
    assert (notice.object_id, notice.created_ms) == (user_id(1), 77)
    away = False
    wait_until(lambda: removals.waiting() == (), what="the slot is removed")
    removals.close()


def test_a_log_that_is_kept_for_a_source_is_told_from_a_gibibyte_on():
    world = World(10, FakeServer())
    for size, expected in (
        (0, None),
        (RETAINED_BYTES - 1, None),
        (RETAINED_BYTES, RETAINED_BYTES),
        (3 * RETAINED_BYTES // 2, 3 * RETAINED_BYTES // 2),
        (5, None),
    ):
        if world.server.slot is not None:
            world.server.slot = replace(world.server.slot, retained_bytes=size)
        world.pause_ms = CHECK_MS
        step = world.poll()
        if step is not None:
            world.commit(step)
            world.ingestion.committed(step)
        slot = world.server.slot
        kept = None if slot is None else slot.retained_bytes
        assert world.ingestion.retained_bytes in (None, kept)
        found = world.ingestion.retained
        assert (None if found is None else found.size_bytes) == expected
        if expected == RETAINED_BYTES:
            since_ms = found.since_ms
        elif expected is not None:
            assert found.since_ms == since_ms
    assert world.ingestion.retained_bytes == 5


def test_the_notice_of_a_log_says_what_to_do():
    details = PostgresDetails(PostgresSettings("p", "slackwater_x_u1", "7", 2, ()), user_id(7))
    item = CatalogItem(user_id(1), ItemKind.SOURCE, "default", "s", "", details=details)
    state = SimpleNamespace(items={item.id: item})
    retained = {user_id(1): RetainedLog(3 * 1024**3 // 2, 5), user_id(9): RetainedLog(1, 1)}
    (notice,) = of_logs(retained, state)
    assert notice.message == (
        f"The server of {item.full_name} keeps 1.5 GiB of its log for the replication slot "
        "slackwater_x_u1"
    )
    assert "pg_stat_activity" in notice.hint
    assert (notice.object_id, notice.created_ms) == (user_id(1), 5)
