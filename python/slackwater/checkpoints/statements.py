"""The statements of checkpoints, as steps of a transaction of their store.

A step that writes first locks the group's row: so writers of one group take turns, whatever their
processes, and what a step reads afterwards stays as it is until it commits. SQLite has one writer
anyway. Source: spec checkpoint 2.3, 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    ScalarSelect,
    Select,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from slackwater.checkpoints.bounds import PartitionProgress, bounds
from slackwater.checkpoints.store import FIRST, GoingBackwards, GroupState
from slackwater.checkpoints.tables import key, time_of
from slackwater.persist.tables import checkpoint_groups, checkpoints
from slackwater.repr.hlc import ZERO, Range, Time

_BEYOND = "~"
"""Greater than every time's text."""


def advance(conn: Connection, group: str, partition: str, time: Time, now_ms: int) -> None:
    """Records a checkpoint that is not applied, as `Store.advance` promises."""
    _lock(conn, group)
    newest = conn.execute(
        select(func.max(checkpoints.c.source_hlc)).where(
            checkpoints.c.group_name == group, checkpoints.c.partition_name == partition
        )
    ).scalar_one()
    if newest is not None and key(time) < newest:
        raise GoingBackwards(group, partition, time, time_of(newest))
    if newest != key(time):
        conn.execute(insert(checkpoints), [_row(group, partition, time, now_ms, applied_ms=None)])


def commit(conn: Connection, group: str, done: Range, now_ms: int) -> None:
    """Marks the checkpoints in `done` as applied, as `Store.commit` promises."""
    committed = _lock(conn, group)
    concerned = [
        each.partition
        for each in _partitions(conn, group, None)
        if each.first is not None and each.first < done.max
    ]
    conn.execute(
        update(checkpoints)
        .where(
            checkpoints.c.group_name == group,
            checkpoints.c.partition_name.in_(concerned),
            checkpoints.c.applied_ms.is_(None),
            checkpoints.c.source_hlc >= key(done.min),
            checkpoints.c.source_hlc < key(done.max),
        )
        .values(applied_ms=now_ms)
    )
    reached = bounds(_partitions(conn, group, None), committed).min
    if reached > committed:
        _set_committed(conn, group, reached)


def ensure(conn: Connection, group: str, partitions: Sequence[str], now_ms: int) -> None:
    """Gives each partition without a checkpoint an applied one, as `Store.ensure` promises."""
    _lock(conn, group)
    known = select(checkpoints.c.partition_name).where(
        checkpoints.c.group_name == group, checkpoints.c.partition_name.in_(partitions)
    )
    missing = set(partitions) - set(conn.execute(known.distinct()).scalars())
    rows = [_row(group, each, FIRST, now_ms, applied_ms=now_ms) for each in sorted(missing)]
    if rows:
        conn.execute(insert(checkpoints), rows)


def raise_committed(conn: Connection, group: str, committed: Time) -> None:
    """Moves `committed` of the group forward, as `Store.raise_committed` promises."""
    if committed > _lock(conn, group):
        _set_committed(conn, group, committed)


def prune(conn: Connection, group: str) -> int:
    """Deletes the applied checkpoints that nothing depends on, as `Store.prune` promises."""
    _lock(conn, group)
    pruned = 0
    for each in _partitions(conn, group, None):
        if each.lead is not None:
            before_lead = delete(checkpoints).where(
                checkpoints.c.group_name == group,
                checkpoints.c.partition_name == each.partition,
                checkpoints.c.source_hlc < key(each.lead),
            )
            pruned += conn.execute(before_lead).rowcount
    return pruned


def forget(conn: Connection, group: str) -> None:
    """Removes all that is kept of a group."""
    for table in (checkpoints, checkpoint_groups):
        conn.execute(delete(table).where(table.c.group_name == group))


def state(conn: Connection, group: str, lookahead: int | None) -> GroupState:
    """Reads the state of the group, as `Store.state` promises."""
    text = conn.execute(_committed(group)).scalar_one_or_none()
    committed = ZERO if text is None else time_of(text)
    return GroupState(committed, tuple(_partitions(conn, group, lookahead)))


def pending(conn: Connection) -> list[str]:
    """Reads the names of the groups that have work, as `Store.pending` promises."""
    name = checkpoint_groups.c.group_name
    waiting = exists().where(checkpoints.c.group_name == name, checkpoints.c.applied_ms.is_(None))
    return list(conn.execute(select(name).where(waiting).order_by(name)).scalars())


def _row(
    group: str, partition: str, time: Time, now_ms: int, *, applied_ms: int | None
) -> dict[str, str | int | None]:
    return {
        "group_name": group,
        "partition_name": partition,
        "source_hlc": key(time),
        "first_seen_ms": now_ms,
        "applied_ms": applied_ms,
    }


def _lock(conn: Connection, group: str) -> Time:
    """Waits until no other writer of the group is left; returns the group's committed time."""
    locking = _committed(group).with_for_update()
    text = conn.execute(locking).scalar_one_or_none()
    if text is None:
        dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
        row = {"group_name": group, "committed": key(ZERO)}
        conn.execute(dialect.insert(checkpoint_groups).values(row).on_conflict_do_nothing())
        text = conn.execute(locking).scalar_one()
    return time_of(text)


def _committed(group: str) -> Select[str]:
    return select(checkpoint_groups.c.committed).where(checkpoint_groups.c.group_name == group)


def _set_committed(conn: Connection, group: str, committed: Time) -> None:
    conn.execute(
        update(checkpoint_groups)
        .where(checkpoint_groups.c.group_name == group)
        .values(committed=key(committed))
    )


def _partitions(conn: Connection, group: str, lookahead: int | None) -> list[PartitionProgress]:
    values: dict[str, str | int] = {"of_group": group}
    if lookahead is not None:
        values["lookahead"] = lookahead
        values["before_lookahead"] = lookahead - 1
    found = conn.execute(_progress_query(lookahead is not None), values)
    return [
        PartitionProgress(
            row.name,
            None if row.lead is None else time_of(row.lead),
            None if row.first is None else time_of(row.first),
            time_of(row.top),
        )
        for row in found
    ]


@cache
def _progress_query(is_limited: bool) -> Select[str, str | None, str | None, str]:
    """`bounds.progress` of each partition, by a few seeks in the indexes for each.

    Parameters: `of_group`; if it is limited `lookahead`, and `before_lookahead`, one less.
    """
    row = checkpoints.alias("row")
    waits, applied = row.c.applied_ms.is_(None), row.c.applied_ms.is_not(None)
    hlc, in_group = row.c.source_hlc, row.c.group_name == bindparam("of_group")

    def of(partition: ColumnElement[str], *more: ColumnElement[bool]) -> list[ColumnElement[bool]]:
        return [in_group, row.c.partition_name == partition, *more]

    def one(value: ColumnElement[str], *conditions: ColumnElement[bool]) -> ScalarSelect[str]:
        return select(value).where(*conditions).scalar_subquery()

    # The names, each found by a seek behind the one before: DISTINCT would read every row.
    names = (
        select(func.min(checkpoints.c.partition_name).label("name"))
        .where(checkpoints.c.group_name == bindparam("of_group"))
        .cte("names", recursive=True)
    )
    behind = row.c.partition_name > names.c.name
    following = one(func.min(row.c.partition_name), in_group, behind)
    names = names.union_all(select(following).where(names.c.name.is_not(None)))

    firsts = (
        select(names.c.name, one(func.min(hlc), *of(names.c.name, waits)).label("first"))
        .where(names.c.name.is_not(None))
        .cte("firsts")
    )
    name, first = firsts.c.name, firsts.c.first
    before_first = hlc < func.coalesce(first, _BEYOND)
    leads = select(
        name,
        first,
        one(func.max(hlc), *of(name, before_first)).label("lead"),
        func.coalesce(one(func.min(hlc), *of(name, applied, hlc > first)), _BEYOND).label("gap"),
    ).cte("leads")
    name, first, lead = leads.c.name, leads.c.first, leads.c.lead
    run = of(name, waits, hlc >= first, hlc < leads.c.gap)
    top = func.coalesce(one(func.max(hlc), *run), lead)
    if is_limited:

        def after(skipped: str) -> ScalarSelect[str]:
            place = bindparam(skipped, type_=Integer)
            at = select(hlc).where(*run).order_by(hlc).offset(place).limit(1)
            return at.scalar_subquery()

        allowed = case((lead.is_(None), after("lookahead")), else_=after("before_lookahead"))
        top = func.coalesce(allowed, top)
    return select(name, lead, first, top.label("top"))
