"""The progress of a sink in the snapshots of an Iceberg table, and in the table's properties.

Each snapshot of a sink says in its summary how far the sink is, and so do properties of the table,
which are set in the same commit: snapshots expire. A table has one sink.

Source: docs/decisions 0077.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.repr.frontier import Frontier
from slackwater.storage.lake.table import LakeProgress

SINK = "slackwater.sink"
FRONTIER = "slackwater.frontier"
VERSION = "slackwater.version"
EPOCH = "slackwater.epoch"
SNAPSHOT = "slackwater.snapshot"
SEQUENCE = "slackwater.sequence"


class ProgressLost(Exception):
    """The table does not tell how far the sink is, and why."""


class OtherSink(Exception):
    """The table has what another sink has written, by its name in the table."""


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of a table: the summaries of those that lead to the current one, from it on
    back, its sequence number, and the ids of others that are still there."""

    summaries: tuple[Mapping[str, str], ...]
    sequence: int = 0
    aside: frozenset[int] = frozenset()


def recorded(sink: str, progress: LakeProgress) -> dict[str, str]:
    """The entries that a commit makes, in a snapshot's summary and in the table's properties."""
    return {
        SINK: sink,
        FRONTIER: str(progress.frontier.value),
        VERSION: str(progress.version),
        EPOCH: str(progress.epoch),
    }


def properties_of(entries: Mapping[str, str], snapshot_id: int, sequence: int) -> dict[str, str]:
    """The properties of the table that a commit with these entries sets."""
    return {**entries, SNAPSHOT: str(snapshot_id), SEQUENCE: str(sequence)}


def progress_in(sink: str, history: History, properties: Mapping[str, str]) -> LakeProgress | None:
    """The last progress of the sink; None: nothing of it is there.

    What others have done since is passed over, and snapshots of the sink may have expired. Raises
    `OtherSink`, and `ProgressLost` for a table that was set back or made anew.
    """
    owner = properties.get(SINK)
    known = None if owner is None else _decoded(properties)
    for summary in history.summaries:
        if SINK not in summary:
            continue
        if known is None:
            raise ProgressLost("it has snapshots of a sink, and no properties of one")
        found = _decoded(summary)
        if summary[SINK] == owner and found.frontier < known.frontier:
            raise ProgressLost(
                f"its snapshots end at {found.frontier.value} and its properties at "
                f"{known.frontier.value}: it was set back"
            )
        break
    else:
        if known is not None and _is_aside(history, properties):
            raise ProgressLost(
                f"its snapshots do not have the commit that ends at {known.frontier.value}: it was "
                "set back or made anew"
            )
    if owner is not None and owner != sink:
        raise OtherSink(owner)
    return known


def _is_aside(history: History, properties: Mapping[str, str]) -> bool:
    """Whether the commit that the properties tell of does not lead to what the table is now."""
    try:
        snapshot_id, sequence = int(properties[SNAPSHOT]), int(properties[SEQUENCE])
    except (KeyError, ValueError) as error:
        raise ProgressLost(f"an entry of the sink is none: {error!r}") from None
    return snapshot_id in history.aside or history.sequence < sequence


def _decoded(entries: Mapping[str, str]) -> LakeProgress:
    try:
        return LakeProgress(
            Frontier(int(entries[FRONTIER])), int(entries[VERSION]), int(entries[EPOCH])
        )
    except (KeyError, ValueError) as error:
        raise ProgressLost(f"an entry of the sink is none: {error!r}") from None
