"""The Python end of the channel to the driver: `Bridge` of the shim, called over py4j.

Attaching takes some tenths of a second and is done on first use, so that a coordinator answers
catalog questions before Spark is reached. Each Python thread has a JVM thread of its own.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import structlog

from slackwater.compute.engine import (
    BY_CATALOG,
    NOTHING_INDEXED,
    Analysis,
    Behind,
    Contents,
    FailingColumn,
    FailingRow,
    Function,
    Hydrated,
    Indexed,
    InferredFiles,
    InputContents,
    Interruption,
    KeptPlan,
    Known,
    Lookup,
    MissedUpdates,
    NamedUpdates,
    ProgramOwner,
    ReplicaShare,
    Ticked,
    TickEnded,
    ViewContents,
    WholeIndex,
    WrittenFile,
)
from slackwater.compute.peeked_rows import PeekStashed
from slackwater.compute.records import ArrangementMemory, ArrangementSize, StepRecord
from slackwater.persist.ipc import from_stream, to_stream
from slackwater.planner.delta.program import Program, Size
from slackwater.planner.parser.names import CATALOG, DEFAULT_SCHEMA
from slackwater.planner.plan.analyzed import analyzed_plan
from slackwater.repr.errors import (
    FatalError,
    SlackwaterError,
)
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.spark.calls import call, error_from_json, error_of
from slackwater.spark.driver import Driver

_log = structlog.get_logger("bridge")


class SparkBridge:
    """The bridge to the leader's driver: the `Engine` of `slackwater.compute.engine`.

    Reads `PYSPARK_GATEWAY_PORT` and `PYSPARK_GATEWAY_SECRET` when it attaches. Errors of the
    user's SQL are raised as SlackwaterError with Spark's own condition and SQLSTATE.
    """

    def __init__(self, driver: Driver | None = None, settings: str = "", replica: str = "") -> None:
        """`replica` names the one whose arrangements and pool are used; "": none of the product."""
        self._driver = driver or Driver()
        self._settings = settings
        self._replica = replica
        self._calls: Any = None

    def under(self, settings: Mapping[str, str] | None) -> SparkBridge:
        """The bridge to the same driver with other settings, as `Engine.under` promises."""
        text = "" if settings is None else json.dumps(dict(settings), sort_keys=True)
        replica = self._replica
        return self._driver.known(text, replica, lambda: SparkBridge(self._driver, text, replica))

    def on_replica(self, share: ReplicaShare) -> SparkBridge:
        """The bridge for a replica, as `Engine.on_replica` promises."""
        before = self._driver.weights.get(share.name)
        self._driver.weights[share.name] = share.weight
        if before not in (None, share.weight) and self._driver.is_attached:
            call(self._scala().weigh, self._driver.environment, share.name, share.weight)
        return SparkBridge(self._driver, self._settings, share.name)

    def end_replica(self, name: str) -> None:
        """Gives back the share of a replica, as `Engine.end_replica` promises."""
        self._driver.forget_replica(name)
        if self._driver.is_attached:
            call(self._scala().endReplica, self._driver.environment, name)

    def _bridge(self) -> Any:
        if self._calls is None:
            environment, replica = self._driver.environment, self._replica
            weight = self._driver.weights.get(replica, 1)
            under = self._scala().under
            self._calls = call(under, self._settings, environment, replica, weight)
        return self._calls

    def _scala(self) -> Any:
        return self._driver.class_of("org.apache.spark.sql.slackwater.bridge.Bridge")

    def _names(self, names: Sequence[str] | None) -> Any:
        values = names or ()
        text = self._driver.class_of("java.lang.Class").forName("java.lang.String")
        result = self._driver.class_of("java.lang.reflect.Array").newInstance(text, len(values))
        for index, name in enumerate(values):
            result[index] = name
        return result

    @contextmanager
    def ended_by(self, interruption: Interruption) -> Iterator[None]:
        before = getattr(self._driver.statement, "interruption", None)
        self._driver.statement.interruption = interruption
        try:
            yield
        finally:
            self._driver.statement.interruption = before

    def calling_at_end(self, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `action` if the thread's statement or tick is interrupted in the block."""
        interruption = getattr(self._driver.statement, "interruption", None)
        return nullcontext() if interruption is None else interruption.on_cancel_or_deadline(action)

    def _run(self, method: Any, *arguments: Any, most_ms: int | None = None) -> Any:
        """Makes a call that may take long. The end of its statement ends its job group.

        Raises `TickEnded` when it takes longer than `most_ms`.
        """
        interruption = getattr(self._driver.statement, "interruption", None)
        group = f"slackwater-{uuid.uuid4().hex}"
        if interruption is None:
            with self._at_most(most_ms, group):
                return call(method, *arguments, group)
        interruption.check_deadline("Spark was asked")
        try:
            self._driver.groups[interruption] = group
            with (
                self._at_most(most_ms, group),
                interruption.on_cancel_or_deadline(lambda: self.cancel(group)),
            ):
                return call(method, *arguments, group)
        except SlackwaterError:
            # How Spark says that it was interrupted depends on where it was.
            self._check_deadline()
            raise
        finally:
            self._driver.groups.pop(interruption, None)

    @contextmanager
    def _at_most(self, most_ms: int | None, group: str) -> Iterator[None]:
        """Ends the group's call after `most_ms` in the block, which raises `TickEnded` then."""
        if most_ms is None:
            yield
            return
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self.cancel(group)

        timer = threading.Timer(most_ms / 1000, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except SlackwaterError as error:
            if is_late.is_set():
                raise TickEnded("slow") from error
            raise
        finally:
            timer.cancel()

    def rows_read(self, interruption: Interruption) -> int:
        """The number of rows read, as `Engine.rows_read` promises."""
        group = self._driver.groups.get(interruption)
        return 0 if group is None else int(call(self._scala().rowsRead, group))

    def warm(self) -> None:
        """Attaches to the driver."""
        self._bridge()

    def analyze(
        self, text: str, catalog: str, namespace: Sequence[str], functions: Sequence[Function] = ()
    ) -> Analysis:
        """The driver's analysis of a query, as `Engine.analyze` promises."""
        analyze, kept = self._bridge().analyze, json.dumps(list(functions))
        answer = self._described(self._run(analyze, text, catalog, self._names(namespace), kept))
        return Analysis(
            desc=RelationDesc.from_json(_as_text(answer["schema"])),
            relations=tuple(answer["relations"]),
            views=tuple(answer["views"]),
            named=tuple(answer["named"]),
            foreign=tuple(answer["foreign"]),
            nondeterministic=tuple(answer["nondeterministic"]),
            uses_mz_now=bool(answer["uses_mz_now"]),
            functions=tuple(answer["functions"]),
            timed=tuple(answer["timed"]),
        )

    def plan(
        self,
        text: str,
        catalog: str,
        namespace: Sequence[str],
        known: Known = BY_CATALOG,
        indexed: Indexed = NOTHING_INDEXED,
    ) -> KeptPlan:
        """The plan of a query, which the driver keeps, as `Engine.plan` promises."""
        functions = json.dumps(list(known.functions))
        relations = None if known.relations is None else json.dumps(list(known.relations))
        answer = self._run(
            self._bridge().plan,
            text,
            catalog,
            self._names(namespace),
            functions,
            relations,
            self._names(indexed.views),
            json.dumps([asdict(each) for each in indexed.indexes]),
            self._driver.environment,
            self._driver.origin,
        )
        return KeptPlan(self._described(answer)["plan"], analyzed_plan(answer))

    def infer(self, files: InferredFiles) -> RelationDesc:
        """The columns that Spark infers from files, as `Engine.infer` promises."""
        request = {
            "format": files.format,
            "options": dict(files.options),
            "groups": [list(group) for group in files.groups],
        }
        answer = self._run(self._bridge().infer, json.dumps(request))
        self._described(answer)
        return RelationDesc.from_json(answer)

    def _described(self, answer: str) -> dict[str, Any]:
        """The driver's JSON about a query or files. Raises the error, if it has one instead."""
        described: dict[str, Any] = json.loads(answer)
        if "error" in described:
            self._check_deadline()
            raise error_from_json(described["error"])
        return described

    def forget_plan(self, plan_id: str) -> None:
        call(self._bridge().forgetPlan, plan_id)

    def look_up(self, wanted: Lookup) -> bytes | None:
        """The rows of the keys in an index, as `Engine.look_up` promises."""
        found = call(
            self._scala().lookUp,
            wanted.program,
            wanted.keys,
            wanted.as_of,
            wanted.below,
            wanted.limits.rows,
            wanted.limits.bytes,
        )
        return None if found is None else bytes(found)

    def take_all(self, wanted: WholeIndex) -> bytes | PeekStashed | None:
        """All rows of an index, as `Engine.take_all` promises."""
        request = json.dumps(asdict(wanted))
        found = self._run(self._bridge().takeAll, wanted.program, request)
        if isinstance(found, str):
            return PeekStashed(**json.loads(found))
        return None if found is None else bytes(found)

    def arrangements(self) -> Sequence[ArrangementSize]:
        """The arrangements of the replica, as `Engine.arrangements` promises."""
        environment, replica = self._driver.environment, self._replica
        found = json.loads(call(self._scala().arrangements, environment, replica))
        return tuple(
            ArrangementSize(
                each["number"],
                tuple(map(GlobalId, each["collections"])),
                each["records"],
                each["bytes"],
                tuple(map(GlobalId, each["readers"])),
            )
            for each in found
        )

    def arrangement_memory(self) -> Sequence[ArrangementMemory]:
        """The room for the replica's arrangements, as `Engine.arrangement_memory` promises."""
        environment, replica = self._driver.environment, self._replica
        found = json.loads(call(self._scala().arrangementMemory, environment, replica))
        return tuple(ArrangementMemory(w["where"], w["used"], w["limit"]) for w in found)

    def open_program(
        self,
        kept: KeptPlan,
        program: Program,
        owner: ProgramOwner,
        as_of: Timestamp,
        resident: bool,
    ) -> SparkProgram:
        """Opens a program in the driver, as `Engine.open_program` promises."""
        self._tell_advances()
        flows = call(self._bridge().dataflows)
        program_id = call(
            flows.open,
            self._driver.environment,
            self._driver.origin,
            kept.plan_id,
            program.to_json(),
            owner.id,
            owner.name,
            as_of,
            resident,
        )
        return SparkProgram(self, flows, program_id, kept.plan_id)

    def unite_arrangements(self) -> None:
        """As `Engine.unite_arrangements` promises."""
        if not self._driver.is_united(self._replica):
            self._tell_advances()

    def _tell_advances(self) -> None:
        """Lets the driver know how far what its programs keep is complete."""
        by_bridge: dict[SparkBridge, dict[str, Timestamp]] = {}
        for program, upper in self._driver.advances().items():
            by_bridge.setdefault(program.bridge, {})[program.program_id] = upper
        for bridge, uppers in by_bridge.items():
            loaded = self._driver.programs_loaded(bridge._replica)
            if not call(call(bridge._bridge().dataflows).advanced, json.dumps(uppers)):
                self._driver.united(bridge._replica, loaded)

    def collect_view(self, view: ViewContents, most_ms: int | None = None) -> pa.Table | None:
        request = _contents_request(view, few=True)
        names = self._names(view.output.stored_names)
        collect, plan_id = self._bridge().collectView, view.kept.plan_id
        payload = self._run(collect, plan_id, request, names, most_ms=most_ms)
        return None if payload is None else from_stream(payload)

    def write_view(
        self, view: ViewContents, directory: str, most_ms: int | None = None
    ) -> list[WrittenFile]:
        request = _contents_request(view, few=False)
        names = self._names(view.output.stored_names)
        write, plan_id = self._bridge().writeView, view.kept.plan_id
        answer = self._run(write, plan_id, request, names, directory, most_ms=most_ms)
        return [WrittenFile(**entry) for entry in json.loads(answer)]

    def failing_row(self, view: ViewContents, *, few: bool) -> FailingRow | None:
        request = _contents_request(view, few=few)
        try:
            found = self._run(self._bridge().failing, view.kept.plan_id, request)
        except SlackwaterError as error:
            # Something fails that is not computed of one row.
            if error.is_data_error:
                return None
            raise
        if found is None:
            return None
        raised, described = error_of(found.error()), json.loads(found.described())
        if not raised.is_data_error:
            return None
        columns = tuple(
            FailingColumn(each["name"], each["collection"], each["read"], each["text"])
            for each in described["columns"]
        )
        return FailingRow(raised, described["group"], columns)

    def check(self, condition: str, columns: RelationDesc) -> SparkCheck:
        bridge = self._bridge()
        answer = json.loads(call(bridge.openCheck, condition, columns.to_json()))
        if "error" in answer:
            raise error_from_json(answer["error"])
        return SparkCheck(bridge, answer["check"])

    def milliseconds(self, expression: str) -> int:
        return int(call(self._bridge().milliseconds, expression))

    def register(
        self,
        view_name: str,
        desc: RelationDesc,
        relation: Mapping[str, Any],
        *,
        consolidated: bool = False,
    ) -> None:
        register = self._bridge().register
        call(register, view_name, desc.to_json(), json.dumps(relation), consolidated)

    def unregister(self, view_names: Sequence[str]) -> None:
        bridge = self._bridge()
        call(bridge.unregister, self._names(view_names))

    def collect(
        self, sql: str, catalog: str | None = None, namespace: Sequence[str] | None = None
    ) -> pa.Table:
        bridge = self._bridge()
        payload = self._run(
            bridge.collect, sql, catalog or CATALOG, self._names(namespace or (DEFAULT_SCHEMA,))
        )
        return from_stream(payload)

    def write(self, sql: str, directory: str) -> list[WrittenFile]:
        bridge = self._bridge()
        answer = json.loads(
            self._run(bridge.write, sql, CATALOG, self._names((DEFAULT_SCHEMA,)), directory)
        )
        return [WrittenFile(**entry) for entry in answer]

    def cancel(self, group: str) -> None:
        """Ends the call of that group, even if it has not begun yet."""
        try:
            call(self._scala().cancel, group)
        except SlackwaterError as error:
            # A driver that is gone runs nothing.
            _log.warning("cannot cancel", error=str(error))

    def _check_deadline(self) -> None:
        interruption = getattr(self._driver.statement, "interruption", None)
        if interruption is not None:
            interruption.check_deadline("Spark had answered")


class SparkCheck:
    """A condition in the driver: the `Check` of `slackwater.compute.engine`."""

    def __init__(self, bridge: Any, check_id: str) -> None:
        self._bridge = bridge
        self._check_id = check_id

    def holds(self, rows: pa.Table) -> list[bool]:
        """For each row whether the condition is true, as `Check.holds` promises."""
        answer = call(self._bridge.check, self._check_id, to_stream(rows))
        return [byte == 1 for byte in answer]

    def close(self) -> None:
        """Lets the driver forget the condition."""
        call(self._bridge.closeCheck, self._check_id)


class SparkProgram:
    """A program in the driver: the `TickProgram` of `slackwater.compute.engine`."""

    def __init__(self, bridge: SparkBridge, flows: Any, program_id: str, plan_id: str) -> None:
        self.bridge = bridge
        self.program_id = program_id
        self._flows = flows
        self._plan_id = plan_id

    def load(self, inputs: InputContents, missed: MissedUpdates | None = None) -> Hydrated | Behind:
        """Hydrates the program in the driver, as `TickProgram.load` promises."""
        answer = self._until_nothing_lacks(lambda asked: self._load(inputs, missed, asked))
        if "behind" in answer:
            return Behind(Timestamp(answer["behind"]))
        self.bridge._driver.loaded(self.bridge._replica)
        return Hydrated(Timestamp(answer["next_change"]))

    def _load(
        self, inputs: InputContents, missed: MissedUpdates | None, asked: frozenset[int]
    ) -> dict[str, Any]:
        bridge = self.bridge
        request = _collections_json(inputs)
        if missed is not None:
            deltas, parts = missed.deltas, bridge._driver.parts
            request["missed"] = {
                "origin": bridge._driver.origin,
                "lower": missed.lower,
                "sources": None if deltas is None else parts.sources_json(deltas, asked),
            }
        load = bridge._bridge().loadProgram
        text = bridge._run(load, self.program_id, self._plan_id, json.dumps(request))
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _until_nothing_lacks(
        self, ask: Callable[[frozenset[int]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The answer of `ask`, which is given the ids of the parts that the driver asked for."""
        asked: frozenset[int] = frozenset()
        answer = ask(asked)
        while "lacks" in answer:
            lacks = frozenset(answer["lacks"])
            if lacks <= asked:
                raise FatalError(f"the driver does not find the parts {sorted(lacks)}")
            asked |= lacks
            answer = ask(asked)
        return answer

    @property
    def handle(self) -> str:
        """The driver's name of the program, as `TickProgram.handle` promises."""
        return self.program_id

    def tick(
        self,
        lower: Timestamp,
        upper: Timestamp,
        deltas: Mapping[str, NamedUpdates],
        most_ms: int | None = None,
        before: InputContents | None = None,
    ) -> Ticked:
        """Runs a tick in the driver, as `TickProgram.tick` promises."""
        updates = memoryview(b"")

        def ticked(asked: frozenset[int]) -> dict[str, Any]:
            nonlocal updates
            request = self._request(lower, upper, most_ms, before)
            request["sources"] = self.bridge._driver.parts.sources_json(deltas, asked)
            payload = self._run(json.dumps(request), by_jobs=before is not None)
            end = 4 + int.from_bytes(payload[:4], "big")
            updates = memoryview(payload)[end:]
            answer: dict[str, Any] = json.loads(payload[4:end])
            return answer

        told = self._until_nothing_lacks(ticked)
        if "ended" in told:
            raise TickEnded(told["ended"])
        steps = tuple(
            StepRecord(
                step["operator"], step["mode"], step["emitted"], step["looked_up"], step["micros"]
            )
            for step in told["operators"]
        )
        return Ticked(
            from_stream(updates),
            steps,
            Timestamp(told["next_change"]),
            told["load_micros"],
            tuple(told["scanned"]),
        )

    def _run(self, request: str, *, by_jobs: bool) -> bytes:
        with self.bridge.calling_at_end(self.close):
            if by_jobs:
                tick = self.bridge._bridge().tickProgram
                return bytes(self.bridge._run(tick, self.program_id, request))
            return bytes(call(self._flows.tick, self.program_id, request))

    def _request(
        self,
        lower: Timestamp,
        upper: Timestamp,
        most_ms: int | None,
        before: InputContents | None,
    ) -> dict[str, Any]:
        return {
            "origin": self.bridge._driver.origin,
            "lower": lower,
            "upper": upper,
            "most_ms": most_ms,
            "before": None if before is None else _collections_json(before),
        }

    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the program's arrangements, as `TickProgram.sizes` promises."""
        found = json.loads(call(self._flows.sizes, self.program_id))
        return tuple(Size(rows, keys) for rows, keys in found)

    def reorder(self, program: Program) -> None:
        """Goes on with another order of lookups, as `TickProgram.reorder` promises."""
        call(self._flows.reorder, self.program_id, program.to_json())

    def committed(self, upper: Timestamp) -> None:
        """Tells the driver that no tick will begin before `upper`."""
        call(self._flows.committed, self.program_id, upper)

    def advanced(self, upper: Timestamp) -> None:
        """Notes that nothing changes before `upper`, as `TickProgram.advanced` promises."""
        self.bridge._driver.advanced(self, upper)

    def close(self) -> None:
        """Ends the program, and frees what it keeps in the driver."""
        self.bridge._driver.forget(self)
        call(self._flows.close, self.program_id)


def _contents_request(view: ViewContents, *, few: bool) -> str:
    inputs = _collections_json(InputContents(view.as_of, view.inputs, few))
    request = {**inputs, "node": view.kept.plan.root}
    if view.recorded is not None:
        request["recorded"] = _contents_json(view.recorded)
    return json.dumps(request)


def _collections_json(inputs: InputContents) -> dict[str, Any]:
    return {
        "few": inputs.few,
        "as_of": inputs.as_of,
        "inputs": {name: _contents_json(each) for name, each in inputs.contents.items()},
    }


def _contents_json(contents: Contents) -> dict[str, Any]:
    return {"schema": contents.desc.to_json(), "relation": contents.relation}


def _as_text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)
