"""A coordinator on a real metastore, without Spark: statements, contents, restarts."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from tests.support.adapter.calls import calls_of
from tests.support.persist.persistence import Environment, acquired
from tests.support.waiting import wait_until

from slackwater.adapter.assembly import Given, open_coordinator
from slackwater.adapter.coordinator import Coordinator
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.leadership import current_leader
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


class NoSpark:
    """Statements that need Spark's analyzer or its jobs are for the tests with Spark."""

    @contextmanager
    def ended_by(self, interruption):
        """Nothing is asked of Spark that could be ended."""
        yield

    def rows_read(self, interruption):
        return 0

    def under(self, settings):
        return self

    def on_replica(self, share):
        return self

    def end_replica(self, name):
        pass

    def unite_arrangements(self):
        """There are none."""

    def infer(self, files):
        """Each column of a CSV file is BIGINT."""
        header = Path(files.groups[0][0]).read_text().splitlines()[0]
        return RelationDesc.of(**dict.fromkeys(header.split(","), "long"))

    def __getattr__(self, name: str):
        raise NotImplementedError(f"{name} needs Spark")


class Replaceable:
    """Spark, as long as a test puts nothing else into its place."""

    def __init__(self, current) -> None:
        self.current = current

    def on_replica(self, share):
        return self

    def end_replica(self, name):
        pass

    def unite_arrangements(self):
        """What tests put here keeps none."""

    def __getattr__(self, name: str):
        return getattr(self.current, name)


class Insides:
    """The parts of a coordinator, for tests that look at them."""

    def __init__(self, coordinator: Coordinator, engine: Replaceable) -> None:
        self.__dict__.update(_coordinator=coordinator, _engine=engine)

    def __getattr__(self, name: str):
        """A part of the coordinator, or what one of two of them has under that name."""
        if name == "engine":
            return self._engine.current
        parts = self._coordinator.parts
        for owner in (parts, parts.relations, parts.timeline, self._coordinator):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value) -> None:
        """Puts another Spark, or another oracle, in the place of the one that is there."""
        if name == "engine":
            self._engine.current = value
        elif name == "oracle":
            object.__setattr__(self._coordinator.parts.timeline, name, value)
        else:
            raise AttributeError(name)


class Place:
    """One environment; `restart` ends its coordinator and lets another one take over."""

    def __init__(self, env: Environment, **options) -> None:
        self._env = env
        self._options = options
        self.fatal: list[str] = []
        self.start()

    def start(self) -> None:
        leader = current_leader(self._env.engine)
        epoch = acquired(self._env.engine, None if leader is None else leader.epoch)
        spark = self._options.get("spark")
        engine = Replaceable(NoSpark() if spark is None else spark)
        given = {
            "on_fatal": self.fatal.append,
            "blobs": LocalBlobs(Path(self._env.location)),
            **self._options,
            "spark": engine,
        }
        self.coordinator = open_coordinator(
            Given(
                engine=self._env.engine,
                location=self._env.location,
                epoch=epoch,
                log="/log",
                **given,
            )
        )
        self.env = Insides(self.coordinator, engine)
        if spark is not None:
            # What an engine looks up is there before views are planned anew.
            spark.place = self
        self.coordinator.start()

    def close(self) -> None:
        self.coordinator.close()
        self.env.state.validate()
        self.env.compute.validate()
        self.env.storage.validate()
        self.env.persist.transactions.validate()
        self.env.history.validate()
        self.coordinator.parts.lag_history.validate()
        self.coordinator.parts.dataflow_history.validate()
        assert self.fatal == []

    def restart(self) -> None:
        self.close()
        self.start()

    def sql(self, text: str, session: str = "app/1", **rest) -> list[dict]:
        """The answer of one statement of Slackwater's own grammar; `rest` goes with the request."""
        body = {"session": session, "text": text, "context": {"user": "me"}, **rest}
        ipc, self.notices = calls_of(self.coordinator)["/v1/execute"](body)
        return pa.ipc.open_stream(ipc).read_all().to_pylist()

    def table(self, name: str, /, *, by: str = "app/1", **columns: str) -> None:
        """A new table of the session `by`; `columns` are Spark's JSON names of types."""
        desc = RelationDesc.of(**columns)
        calls_of(self.coordinator)["/v1/catalog/create_table"](
            {
                "session": by,
                "namespace": ["default"],
                "name": name,
                "schema": desc.to_json(),
            }
        )

    def drop(self, name: str, session: str = "app/1") -> None:
        """Drops a table."""
        calls_of(self.coordinator)["/v1/catalog/drop_table"](
            {"session": session, "namespace": ["default"], "name": name}
        )

    def write(self, name: str, *rows: dict, diff: int = 1, **body) -> Timestamp:
        """Inserts rows into a table, or deletes them with -1; the time of the commit.

        `body` is what the request says besides, like its write_id.
        """
        item = self.item(name)
        answer = calls_of(self.coordinator)["/v1/write"](
            {
                "session": "app/1",
                "table": item.id,
                "write_id": uuid.uuid4().hex,
                "mode": "diff",
                "inline": [self.encoded(name, *rows, diff=diff)],
                **body,
            }
        )
        return Timestamp(answer["timestamp"])

    def encoded(self, name: str, *rows: dict, diff: int = 1) -> str:
        """Rows of a table as a request has them."""
        table = pa.Table.from_pylist(list(rows), schema=self.item(name).desc.arrow_schema())
        table = table.append_column("__diff", pa.array([diff] * len(rows), pa.int64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return base64.b64encode(sink.getvalue()).decode()

    def item(self, name: str):
        return self.env.state.get("default", name)

    def rows(self, name: str, at: int | None = None) -> list[dict]:
        """The rows of a stored collection, now or at a time."""
        shard = self.item(name).shard_id
        time = self.env.persist.reads.tables_upper() - 1 if at is None else at
        return self.env.persist.reads.snapshot(shard, Timestamp(time)).to_pylist()

    def read(self, name: str, at: int | None = None) -> list[dict]:
        """The rows of a collection as a query gets them, now or AS OF a time."""
        body = {"session": "app/1", "relations": [{"id": self.item(name).id}]}
        if at is not None:
            body["as_of"] = {"at": at}
        bound = calls_of(self.coordinator)["/v1/bind"](body)
        try:
            return self.rows(name, bound["timestamp"])
        finally:
            calls_of(self.coordinator)["/v1/release"]({"holds": [bound["hold"]]})

    def updates(self, name: str) -> list[dict]:
        """All updates of a stored collection, in the order of time."""
        item = self.item(name)
        upper = self.env.persist.reads.tables_upper()
        parts = self.env.persist.reads.parts_between(item.shard_id, Timestamp(0), upper)
        return self.env.persist.reads.read(parts, item.desc).sort_by("__time").to_pylist()

    def system(self, name: str) -> list[dict]:
        relation = next(each for each in SYSTEM_RELATIONS if each.name == name)
        ipc = self.coordinator.parts.system.rows({relation.id: Timestamp(0)})[relation.id]
        return pa.ipc.open_stream(ipc).read_all().to_pylist()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Returns once `condition` holds."""
        wait_until(condition, every_s=0.01)
