"""Outputs of a worker that writes its shards itself, without a leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DirectOutputs:
    """`commits` are those of the environment, or what stands before them."""

    commits: Any

    def append(self, flow, appends):
        self.commits.commit(appends)

    def advance(self, moves):
        uppers = {}
        for flow, _, upper in moves:
            uppers |= {flow.view.shard_id: upper, flow.view.errors_shard: upper}
        self.commits.advance(uppers)
