"""A table log in memory that fails on command, for tests of what is above it."""

import random
import threading

import pyarrow as pa

from slackwater.adapter.controllers.table_log import LogFencedError, LogMovedError
from slackwater.persist.parts import InlineBody, NewPart
from slackwater.repr.errors import user_error


def rows(*values, diff=1):
    return pa.table(
        {"k": pa.array(values, pa.int64()), "__diff": pa.array([diff] * len(values), pa.int64())}
    )


def outage():
    return user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="10", reason="it is down")


class MemoryLog:
    """`before` and `after` run around the commit point of each append and may raise."""

    def __init__(self, before=lambda: None, after=lambda: None):
        self.upper = 1
        self.updates = []
        self.commits = []
        self.results = {}
        self.before = before
        self.after = after
        self.mutex = threading.Lock()

    def tables_upper(self):
        return self.upper

    def written(self, write_id):
        return self.results.get(write_id)

    def new_parts(self, shard_id, updates):
        assert updates.column_names[-2:] == ["__time", "__diff"]
        time = updates["__time"][0].as_py()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, updates.schema) as writer:
            writer.write_table(updates)
        body = InlineBody(sink.getvalue().to_pybytes())
        return (NewPart(body, updates.num_rows, time, time, False),)

    def append(self, lower, upper, parts, steps, results):
        self.before()
        with self.mutex:
            if lower != self.upper:
                raise LogMovedError
            for step in steps:
                step(None)
            for shard_id, made in parts.items():
                for part in made:
                    for row in pa.ipc.open_stream(part.body.ipc).read_all().to_pylist():
                        assert lower <= row["__time"] < upper
                        self.updates.append((shard_id, row["k"], row["__time"], row["__diff"]))
            self.upper = upper
            self.commits.append((lower, upper, dict(parts)))
            self.results.update(results)
        self.after()

    def visible(self, as_of):
        """The rows of all tables at `as_of`, with multiplicity."""
        with self.mutex:
            assert as_of < self.upper
            return [(shard, k) for shard, k, time, _ in self.updates if time <= as_of]


class Weather:
    """Fails and delays by seed."""

    def __init__(self, seed, log_of):
        self.random = random.Random(seed)
        self.log_of = log_of

    def before(self):
        chance = self.random.random()
        if chance < 0.15:
            raise outage()
        if chance < 0.3:
            log = self.log_of()
            with log.mutex:
                log.upper += self.random.randrange(1, 5)

    def after(self):
        if self.random.random() < 0.15:
            raise outage()


def fence():
    raise LogFencedError
