"""The compute controller for the threads of a process: its replicas, its commits, and who waits.

The core is called under the lock of the storage controller, whose holds it moves. What follows is
carried out in order, by the thread that caused it, under a lock of its own; so replicas get their
commands in order. What a replica says while it takes a command is dealt with by the same thread,
after that.

Outputs are committed without any lock, by the thread that brought them: those of one call in one
commit. Whoever offers an output in this process is told why a commit failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock, get_ident
from typing import Protocol, TypeVar

import structlog

from slackwater.compute.controller import effects as ef
from slackwater.compute.controller.core import ComputeController, Restored
from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.protocol import (
    Command,
    DataflowStatus,
    FromReplica,
    Log,
    OutputCommitted,
    OutputFailed,
    OutputRefused,
    Peek,
    PeekAnswer,
    PeekRows,
    ReplicaFailed,
    ReplicaResponse,
    Response,
)
from slackwater.compute.controller.storage_collections import StorageCollections
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId, introspection_source_index_id
from slackwater.repr.read_policy import ReadPolicy

T = TypeVar("T")

_log = structlog.get_logger("compute")


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection has ended by itself, with all that was under way; it says nothing more.

    `Compute.maintain` connects again. A replica that has gone on alone compares what it has with
    what it is told then (`reconciliation`).
    """


Respond = Callable[[Sequence[ReplicaResponse | ConnectionLost]], None]


Follow = Callable[[ef.DeliverSubscribe], None]
"""It takes the next part of a subscription. It does not block, nor call the controller."""


class StorageCore(Protocol):
    """The parts of the storage controller's core that this one uses."""

    @property
    def capabilities(self) -> StorageCollections: ...

    def update_write_frontiers(self, uppers: Iterable[tuple[GlobalId, Frontier]]) -> None:
        """Collections have been written up to here."""
        ...


class StorageLock(Protocol):
    """The shell of the storage controller, which lends its core."""

    def do(self, action: Callable[[StorageCore], T]) -> T:
        """Runs the action under the lock, then carries out what follows from it in storage."""
        ...

    def look(self, action: Callable[[StorageCore], T]) -> T:
        """Runs the action, which changes nothing, under the lock."""
        ...


class OutputRefusal(Exception):
    """A stored output does not end where the append begins, or is gone; nothing was written."""


class OutputStore(Protocol):
    """The seam to the shards of stored outputs."""

    def append(self, outputs: Sequence[ef.CommitOutput]) -> None:
        """Appends all or none. Raises OutputRefusal; what else it raises leaves that open."""
        ...

    def upper(self, target: GlobalId) -> Frontier | None:
        """The upper of the stored output; None: it is gone."""
        ...


class ReplicaLink(Protocol):
    """The connection to a replica. Thread-safe."""

    def send(self, command: Command) -> None:
        """Gives the replica its next command. Does not block."""
        ...

    def wake(self) -> None:
        """Something that dataflows read was committed."""
        ...

    def close(self) -> None:
        """Begins to end the connection. Does not block."""
        ...

    def join(self) -> None:
        """Returns when the replica in this process, if it is one, has ended."""
        ...

    def drop(self) -> None:
        """Ends the connection, as `close` does; a replica of this process gives all back."""
        ...


class Listeners(Protocol):
    """Those who are told. Called in any thread; they must not call the controller."""

    def moved(self) -> None:
        """Outputs or indexes have come further."""
        ...

    def told(self, before: DataflowStatus, now: DataflowStatus) -> None:
        """A replica has told another status of a dataflow."""
        ...


@dataclass(frozen=True, slots=True)
class Seams:
    """The outside of a compute controller.

    `connect` opens the connection to the replica at a location; the replica gives what it has to
    say to the function, and so it is told that the connection was lost. `clock_ms` never goes back;
    it dates the leases. `discard` deletes a file of rows that nobody reads, and does not raise.
    """

    storage: StorageLock
    outputs: OutputStore
    connect: Callable[[ReplicaKey, str, Respond], ReplicaLink]
    listeners: Listeners
    clock_ms: Callable[[], int]
    discard: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OpenPeek:
    """A peek that was sent, and the answer to come."""

    peek_id: str
    answer: Future[PeekAnswer]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Whether a replica is connected, and since when that is so, by the shell's clock."""

    is_online: bool
    changed_ms: int


class Compute:
    """Instances, their replicas and their dataflows. Thread-safe."""

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._core = seams.storage.look(lambda core: ComputeController(core.capabilities))
        self._order = Lock()
        self._carrier: int | None = None
        """The thread that carries out effects."""
        self._said: list[Response] = []
        """The responses of replicas while they took a command."""
        self._links: dict[ReplicaKey, tuple[int, ReplicaLink]] = {}
        self._leases_ms: dict[ReplicaKey, int] = {}
        self._statuses: dict[ReplicaKey, ReplicaStatus] = {}
        self._peeks: dict[str, Future[PeekAnswer]] = {}
        self._peek_count = 0
        self._followers: dict[GlobalId, Follow] = {}
        self._logs: dict[str, tuple[GlobalId, ...]] = {}
        self._log_count = 0

    # Instances and replicas

    def create_instance(self, instance_id: str) -> None:
        """Adds an instance without replicas. Raises INSTANCE_EXISTS."""
        logs = tuple(
            introspection_source_index_id(self._log_count + number)
            for number in range(1, len(Log) + 1)
        )
        self._log_count += len(Log)
        self._do(lambda core: core.create_instance(instance_id, logs=logs))
        self._logs[instance_id] = logs

    def drop_instance(self, instance_id: str) -> None:
        """Removes the instance with its replicas and dataflows; an unknown one is ignored."""
        self._do(lambda core: core.drop_instance(instance_id))
        self._logs.pop(instance_id, None)

    def add_replica(self, instance_id: str, name: str, location: str) -> None:
        """Connects to the replica. Raises INSTANCE_MISSING, REPLICA_EXISTS."""
        self._do(lambda core: core.add_replica_to_instance(instance_id, name, location))

    def drop_replica(self, instance_id: str, name: str) -> None:
        """Gives up the replica. Raises INSTANCE_MISSING, REPLICA_MISSING."""
        self._do(lambda core: core.drop_replica(instance_id, name))

    def update_configuration(self, parameters: Mapping[str, str]) -> None:
        """Sets parameters of all replicas, as `ComputeController.update_configuration` does."""
        self._do(lambda core: core.update_configuration(parameters))

    def initialization_complete(self) -> None:
        """All that there is was created: replicas drop what was not."""
        self._do(lambda core: core.initialization_complete())

    def close(self) -> None:
        """Ends the connections, and waits for replicas of this process. Nothing is lost."""
        self._do(lambda core: core.cancel_peeks(list(self._peeks)))
        with self._order:
            links = [link for _, link in self._links.values()]
        for link in links:
            link.close()
        for link in links:
            link.join()

    # Dataflows

    def create(
        self,
        dataflows: Sequence[tuple[str, DataflowDescription]],
        policies: Mapping[GlobalId, ReadPolicy],
        now: Timestamp,
    ) -> Restored:
        """Creates dataflows, as `ComputeController.restore` does, and lets the views be written."""

        def create(core: ComputeController) -> Restored:
            restored = core.restore(dataflows, policies, now)
            for instance_id, each in dataflows:
                if each.export_ids[0] not in restored.refused:
                    for sink in each.sink_exports:
                        core.allow_writes(instance_id, sink.id)
            return restored

        restored = self._do(create)
        for each in restored.failed:
            _log.warning("as_of", dataflow=each.exports, reason=each.reason, at=each.frontier.value)
        return restored

    def drop(self, instance_id: str, ids: Iterable[GlobalId]) -> None:
        """Gives up dataflows by their exports; those that are not there are ignored."""
        chosen = list(ids)

        def drop(core: ComputeController) -> None:
            known = {state.id for state in core.collections(instance_id)}
            core.drop_collections(instance_id, [each for each in chosen if each in known])

        self._do(drop)
        for each in chosen:
            self._followers.pop(each, None)

    def subscribe(self, instance_id: str, dataflow: DataflowDescription, follow: Follow) -> None:
        """Creates the dataflow of a subscription, which ends when it is dropped.

        `follow` gets all that is delivered for it, in order. Raises as
        `ComputeController.create_dataflow` does.
        """
        (global_id,) = dataflow.export_ids

        def create(core: ComputeController) -> None:
            core.create_dataflow(instance_id, dataflow)
            self._followers[global_id] = follow

        self._do(create)

    def set_policy(self, instance_id: str, global_id: GlobalId, policy: ReadPolicy) -> None:
        """Sets another policy of an index. Raises INSTANCE_MISSING, COLLECTION_MISSING."""
        self._do(lambda core: core.set_read_policy(instance_id, [(global_id, policy)]))

    # What happens elsewhere

    def committed(self) -> None:
        """Something was committed that dataflows may read. Does not wait for commits of others."""
        for _, link in list(self._links.values()):
            link.wake()
        if self._core.is_waiting:
            self._do(lambda core: None)

    def maintain(self) -> None:
        """Looks at what is stored, and connects to failed replicas again; about once a second."""
        self._do(lambda core: core.look_around())

    # Looking

    def look(self, action: Callable[[ComputeController], T]) -> T:
        """Runs the action, which changes nothing, on the core."""
        return self._seams.storage.look(lambda _: action(self._core))

    def lease_ms(self) -> int | None:
        """Names of files that were got before this time are used by no replica; None: by none."""
        return min(list(self._leases_ms.values()), default=None)

    def replica_statuses(self) -> dict[ReplicaKey, ReplicaStatus]:
        """The status of each replica that was added and not dropped."""
        return dict(self._statuses)

    def log(self, log: Log, timeout_s: float | None = None) -> list[tuple[ReplicaKey, PeekAnswer]]:
        """The rows of the log on each replica of each instance.

        Of a replica that is dropped meanwhile it has none. Raises TimeoutError when a replica has
        not answered after so long; None: waits for its answer.
        """
        answers: list[tuple[ReplicaKey, PeekAnswer]] = []
        for key in list(self._links):
            logs = self._logs.get(key.instance)
            if logs is None:
                continue
            asked = logs[list(Log).index(log)]
            try:
                peek = self.peek(key.instance, Peek("", asked, Timestamp(0)), key.replica)
            except ComputeError:
                continue
            try:
                answer = peek.answer.result(timeout_s)
            except FuturesTimeout:
                self.cancel_peek(peek.peek_id)
                raise TimeoutError(f"the replica {key.replica} does not answer") from None
            if isinstance(answer, PeekRows) or key in self._links:
                answers.append((key, answer))
        return answers

    def peek(self, instance_id: str, wanted: Peek, replica: str | None = None) -> OpenPeek:
        """Begins a peek, under an id of its own. Raises as `ComputeController.peek` does."""
        answer: Future[PeekAnswer] = Future()

        def ask(core: ComputeController) -> str:
            self._peek_count += 1
            peek_id = str(self._peek_count)
            core.peek(instance_id, replace(wanted, peek_id=peek_id), replica)
            self._peeks[peek_id] = answer
            return peek_id

        return OpenPeek(self._do(ask), answer)

    def cancel_peek(self, peek_id: str) -> None:
        """Answers the peek with `PeekCanceled`, unless it has an answer."""
        self._do(lambda core: core.cancel_peek(peek_id))

    def validate(self) -> None:
        """Raises FatalError when the core is not consistent, or knows another replica."""
        self.look(lambda core: core.validate())

    # Responses and effects

    def _hear(
        self, key: ReplicaKey, nonce: int, responses: Sequence[ReplicaResponse | ConnectionLost]
    ) -> None:
        """Takes what a replica says. Raises what commits of outputs among it raise."""
        said = [
            ReplicaFailed(key, nonce)
            if isinstance(each, ConnectionLost)
            else FromReplica(key, nonce, each)
            for each in responses
        ]
        if self._carrier == get_ident():
            self._note_losses(said)
            self._said += said
        else:
            self._answer(said, ())

    def _note_losses(self, responses: Iterable[Response]) -> None:
        """Called with the lock of the order."""
        for each in responses:
            if isinstance(each, ReplicaFailed):
                connected, _ = self._links.get(each.replica, (None, None))
                if connected == each.nonce:
                    lost = ReplicaStatus(False, self._seams.clock_ms())
                    self._statuses[each.replica] = lost

    def _do(self, action: Callable[[ComputeController], T]) -> T:
        with self._order:
            result, commits = self._run(lambda _: action(self._core))
        self._commit(commits)
        return result

    def _answer(
        self, responses: Sequence[Response], uppers: Sequence[tuple[GlobalId, Frontier]]
    ) -> None:
        """Lets the core deal with the responses; stored outputs are at `uppers` before that."""

        def answer(core: StorageCore) -> None:
            if uppers:
                core.update_write_frontiers(uppers)
            for each in responses:
                self._core.respond(each)

        with self._order:
            self._note_losses(responses)
            _, commits = self._run(answer)
        self._commit(commits)

    def _run(self, action: Callable[[StorageCore], T]) -> tuple[T, list[ef.CommitOutput]]:
        """Called with the lock of the order; what is left are commits."""
        self._carrier = get_ident()
        try:
            result, effects = self._seams.storage.do(
                lambda core: (action(core), self._core.process())
            )
            commits = self._carry_out(effects)
            while self._said:
                said, self._said = self._said, []
                effects = self._seams.storage.do(partial(self._heard, said))
                commits += self._carry_out(effects)
        finally:
            self._carrier = None
        return result, commits

    def _heard(self, said: Sequence[Response], _: StorageCore) -> tuple[ef.Effect, ...]:
        for each in said:
            self._core.respond(each)
        return self._core.process()

    def _carry_out(self, effects: Iterable[ef.Effect]) -> list[ef.CommitOutput]:
        commits: list[ef.CommitOutput] = []
        has_moved = False
        for effect in effects:
            match effect:
                case ef.CommitOutput():
                    commits.append(effect)
                case ef.SendToReplica(key, nonce, command):
                    connected, link = self._links.get(key, (None, None))
                    if connected == nonce and link is not None:
                        link.send(command)
                case ef.ReportUpper():
                    has_moved = True
                case ef.ReportStatus(_, before, now):
                    self._seams.listeners.told(before, now)
                case ef.RenewLease(key, busy_ms):
                    if key in self._leases_ms:
                        renewed_ms = self._seams.clock_ms() - busy_ms
                        self._leases_ms[key] = max(self._leases_ms[key], renewed_ms)
                case ef.DeliverSubscribe(global_id):
                    if (follow := self._followers.get(global_id)) is not None:
                        follow(effect)
                        has_moved = True
                case ef.AnswerPeek(peek_id, answer):
                    self._peeks.pop(peek_id).set_result(answer)
                case ef.DiscardStash(uri):
                    self._seams.discard(uri)
                case ef.ConnectReplica(key, location, nonce):
                    now_ms = self._leases_ms[key] = self._seams.clock_ms()
                    self._statuses[key] = ReplicaStatus(True, now_ms)
                    self._links[key] = (nonce, self._connected(key, location, nonce))
                case ef.DisconnectReplica(key):
                    _, link = self._links.pop(key)
                    del self._leases_ms[key], self._statuses[key]
                    link.drop()
                case ef.ReportViolation(key, message):
                    _log.warning("violation", replica=f"{key.instance}.{key.replica}", what=message)
                case _:
                    raise FatalError(f"nobody asked for {type(effect).__name__}")
        if has_moved:
            self._seams.listeners.moved()
        return commits

    def _connected(self, key: ReplicaKey, location: str, nonce: int) -> ReplicaLink:
        return self._seams.connect(
            key, location, lambda responses: self._hear(key, nonce, responses)
        )

    # Commits

    def _commit(self, commits: Sequence[ef.CommitOutput]) -> None:
        """Commits what it can, tells the core of all, and raises what a commit has raised."""
        if not commits:
            return
        try:
            self._seams.outputs.append(commits)
        except OutputRefusal:
            self._commit_each(commits)
            return
        except BaseException:
            self._answer([OutputFailed(each.ticket) for each in commits], self._uppers(commits))
            raise
        self._answer(
            [OutputCommitted(each.ticket) for each in commits],
            [(each.target, each.upper) for each in commits],
        )

    def _commit_each(self, commits: Sequence[ef.CommitOutput]) -> None:
        """One of them was refused: each is committed, or refused, by itself."""
        if len(commits) == 1:
            (refused,) = commits
            uppers = self._uppers(commits)
            reached = uppers[0][1] if uppers else MINIMUM_FRONTIER
            self._answer([OutputRefused(refused.ticket, reached)], uppers)
            return
        failures: list[BaseException] = []
        for each in commits:
            try:
                self._commit([each])
            except BaseException as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _uppers(self, commits: Sequence[ef.CommitOutput]) -> list[tuple[GlobalId, Frontier]]:
        """The present uppers of the outputs that are not gone."""
        found = [(each.target, self._seams.outputs.upper(each.target)) for each in commits]
        return [(target, upper) for target, upper in found if upper is not None]
