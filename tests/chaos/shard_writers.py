"""Eight threads that append to overlapping sets of shards. Run by test_persist_faults.py.

``python -m tests.chaos.shard_writers URL LOCATION EPOCH SEED``. A row goes to several shards in one
commit; the lines ``try ROW SHARDS`` and ``ack ROW`` go to stdout. Ends with its stdin.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
import traceback
from pathlib import Path

from tests.support.persist.persistence import EAGER, updates

from slackwater.persist.blobs import LocalBlobs, file_part, inline_part
from slackwater.persist.client import (
    Append,
    PersistClient,
    TablesAppend,
    UpperMismatch,
    WriteResult,
)
from slackwater.persist.compaction import Compactor, choose
from slackwater.persist.metastore import connect
from slackwater.repr.errors import SlackwaterError

WRITERS = 8


def main(url: str, location: str, epoch: str, seed: str) -> None:
    client = PersistClient(connect(url), LocalBlobs(Path(location)), int(epoch))
    shards = client.reads.shard_ids()
    lines = threading.Lock()

    def say(line):
        with lines:
            os.write(1, f"{line}\n".encode())

    def write(number):
        random_ = random.Random(f"{seed} {epoch} {number}")
        for count in range(10**9):
            row = (int(epoch) * WRITERS + number) * 10**6 + count
            chosen = random_.sample(shards, random_.randint(1, 4))
            say(f"try {row} {','.join(map(str, chosen))}")
            try:
                append(client, row, chosen, as_file=random_.random() < 0.2)
            except SlackwaterError as error:
                say(f"error {row} {error.condition}")
            else:
                say(f"ack {row}")

    def merge():
        for shard in itertools.cycle(shards):
            chosen = choose(client.reads.parts(shard), 0, EAGER)
            if chosen is not None:
                with contextlib.suppress(SlackwaterError):
                    Compactor(client, EAGER).compact(shard, chosen, 0)

    def or_end(work, *arguments):
        try:
            work(*arguments)
        finally:
            traceback.print_exc()
            os._exit(1)

    for work in [(merge,), *((write, number) for number in range(WRITERS))]:
        threading.Thread(target=or_end, args=work, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def append(client, row, chosen, *, as_file):
    """Commits the row to all the shards, at whatever their uppers are."""
    while True:
        appends, in_tables = [], {}
        tables_upper = client.reads.tables_upper()
        for shard in chosen:
            state = client.reads.state(shard)
            lower = tables_upper if state.shares_tables_upper else state.upper
            table = updates((row, "x", lower, 1))
            if as_file:
                part = file_part(client.blobs, table, client.files.shard_directory(shard))
            else:
                part = inline_part(table)
            if state.shares_tables_upper:
                in_tables[shard] = (part,)
            else:
                appends.append(Append(shard, lower, lower + 1, (part,)))
        tables = TablesAppend(tables_upper, tables_upper + 1, in_tables) if in_tables else None
        try:
            client.commits.commit(
                appends, tables=tables, write_ids={f"w{row}": WriteResult(tables_upper, 1, 0)}
            )
        except UpperMismatch:
            continue
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
