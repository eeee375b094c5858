"""The errors of sinks that write to other systems. Source: docs/decisions 0070, 0076."""

from __future__ import annotations

from slackwater.repr.errors import SlackwaterError, user_error


def unreachable(object_name: str, place: str, reason: str) -> SlackwaterError:
    """SLACKWATER_SINK_UNREACHABLE: the sink cannot write to the place now."""
    return user_error(
        "SLACKWATER_SINK_UNREACHABLE", objectName=object_name, place=place, reason=reason
    )


def progress_lost(object_name: str, place: str, reason: str) -> SlackwaterError:
    """SLACKWATER_SINK_PROGRESS_LOST: the place does not say where the sink goes on."""
    return user_error(
        "SLACKWATER_SINK_PROGRESS_LOST", objectName=object_name, place=place, reason=reason
    )
