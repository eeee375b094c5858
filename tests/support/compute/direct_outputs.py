"""Outputs of a worker that writes its shards itself, without a leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackwater.persist.appends import UpperMismatch


@dataclass(frozen=True)
class DirectOutputs:
    """`commits` are those of the environment, or what stands before them."""

    commits: Any

    def append(self, offered):
        try:
            self.commits.commit([each for _, appends in offered for each in appends])
        except UpperMismatch as refusal:
            if len(offered) == 1:
                return [refusal]
            return [refusal for each in offered for refusal in self.append([each])]
        return [None for _ in offered]

    def advance(self, moves):
        uppers = {}
        for flow, _, upper in moves:
            uppers |= {flow.view.shard_id: upper, flow.view.errors_shard: upper}
        self.commits.advance(uppers)
