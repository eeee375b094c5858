"""The calls of a coordinator by their paths, from bodies as the shim sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from slackwater.adapter.calls import Endpoint, Rows
from slackwater.adapter.coordinator import Coordinator
from slackwater.server.decoding import decode


def calls_of(coordinator: Coordinator) -> Mapping[str, Callable]:
    """What answers a body, by path. `/v1/execute` gives the stream and the notices."""
    return {
        path: partial(_answer, endpoint) for path, endpoint in coordinator.calls.endpoints().items()
    }


def _answer(endpoint: Endpoint, body: Mapping):
    answer = endpoint.answer(*decode(endpoint.request, body))
    return (answer.ipc, list(answer.notices)) if isinstance(answer, Rows) else answer
