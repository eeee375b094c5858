"""Sources FROM WEBHOOK: requests are checked, become rows, and share commits.

The requests of a source that wait at the same moment are checked together, and those of all sources
are written together: a request is answered when the commit that has its rows is durable and
readable. The caller that hands a request over never waits; it is called back, mostly in another
thread.

Source: spec coordinator 6.4.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import quote

import structlog
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import CheckConfig, WebhookDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.sources.checks import Checks
from slackwater.adapter.sources.request_writer import RequestWriter
from slackwater.adapter.sources.source_states import SourceStates, write_statistics
from slackwater.adapter.writing.group_commit import GroupCommitter, Write
from slackwater.adapter.writing.staged_files import staged_files
from slackwater.persist.client import PersistClient
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import SourceStatistics, SourceStatus, StatusChange
from slackwater.storage.webhook import (
    BadRequest,
    RequestRows,
    TooManyRows,
    WebhookConfig,
    rows_of,
    table,
)

PATH = "/api/webhook/"
AT_ONCE_BYTES = 64 * 1024
"""A larger body is taken apart in a thread of its own, not in that of the caller."""
CHECKING_THREADS = 4

_log = structlog.get_logger("webhooks")


class Verdict(Enum):
    """The outcome of a request.

    COMMITTED: its rows are durable. REFUSED: the condition of CHECK does not hold. MALFORMED,
    TOO_LARGE: the source does not take the body. BACKWARDS: a feed takes back a time that it has
    resolved. GONE: the source, or a secret that its condition needs, is not there any more. FULL:
    too much waits, or there is no space. UNAVAILABLE: it may be sent again later; whether it was
    committed is not certain. FAILED: a defect.
    """

    COMMITTED = "committed"
    REFUSED = "the condition of the source does not hold"
    MALFORMED = "the body is not what the source takes"
    TOO_LARGE = "the body has too many rows"
    BACKWARDS = "a resolved timestamp goes back"
    GONE = "no such source"
    FULL = "too much waits"
    UNAVAILABLE = "try again"
    FAILED = "internal error"


Done = Callable[[Verdict, str], None]
"""Takes the verdict and a text for the sender. It must be quick: other requests wait meanwhile."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A source as requests see it."""

    item: CatalogItem
    shard_id: int
    config: WebhookConfig
    check: CheckConfig | None


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request. `received_us` is in microseconds since the epoch."""

    webhook: Webhook
    body: bytes
    headers: Mapping[str, str]
    received_us: int
    done: Done


@dataclass(slots=True)
class _RequestQueue:
    """The requests of one source that wait to be checked. `busy`: a thread checks them now."""

    waiting: deque[WebhookRequest] = field(default_factory=deque)
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Listening:
    """The state of the ingress. `url` begins all addresses; `error` says why none can come."""

    url: str
    error: str | None
    since_ms: int

    def url_of(self, path: str, item: CatalogItem) -> str:
        """The URL to which senders to a source post; without an ingress, the path alone."""
        parts = (CATALOG_NAME, item.schema_name, item.name)
        return f"{self.url}{path}{'/'.join(quote(part, safe='') for part in parts)}"

    def notice(self, told: str) -> str:
        """The notice `told`, with the reason if no request can come yet."""
        return told if self.error is None else f"{told} None can come yet: {self.error}."


class Webhooks:
    """Takes the requests of all sources. Thread-safe; `start` it once."""

    def __init__(
        self,
        state: Callable[[], CatalogState],
        *,
        persist: PersistClient,
        committer: GroupCommitter,
        states: SourceStates,
        checks: Checks,
        clock_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._persist = persist
        self._committer = committer
        self._states = states
        self._checks = checks
        self._clock_ms = clock_ms
        self._listening = Listening("", "spark.slackwater.ingress.address is not set", clock_ms())
        self._known: dict[GlobalId, tuple[CatalogItem, Webhook]] = {}
        self._lock = threading.Lock()
        self._queues: dict[GlobalId, _RequestQueue] = {}
        self._counted: dict[GlobalId, SourceStatistics] = {}
        self._stored: dict[GlobalId, SourceStatistics] = {}
        self._sending: dict[GlobalId, SourceStatistics] = {}
        self._pool = ThreadPoolExecutor(CHECKING_THREADS, "webhook-check")
        self._writer = RequestWriter(
            "webhook-append", lambda each: each.webhook.item.id, self._submit, self._failed
        )

    def start(self) -> None:
        self._writer.start()

    def stop(self) -> None:
        """Ends the threads. Requests that wait are written; later ones are UNAVAILABLE."""
        self._pool.shutdown(wait=False)
        self._writer.stop()

    def find(self, schema: str, name: str) -> Webhook | None:
        """The source of exactly that name, with the case that it was given."""
        item = self._state().find(schema, name)
        if item is None or item.kind is not ItemKind.SOURCE or not item.is_webhook:
            return None
        if (item.schema_name, item.name) != (schema, name) or item.shard_id is None:
            return None
        known = self._known.get(item.id)
        if known is None or known[0] is not item:
            details = item.of(WebhookDetails)
            webhook = Webhook(item, item.shard_id, details.config, details.check)
            self._known[item.id] = known = (item, webhook)
        return known[1]

    def post(self, request: WebhookRequest) -> None:
        """Takes a request; its `done` is called once, here or in another thread."""
        own = request.webhook.item.id
        received = SourceStatistics(messages_received=1, bytes_received=len(request.body))
        with self._lock:
            self._counted[own] = self._counted.get(own, SourceStatistics()).after(received)
        if request.webhook.check is None and len(request.body) <= AT_ONCE_BYTES:
            self._stage([request])
            return
        with self._lock:
            queue = self._queues.setdefault(own, _RequestQueue())
            queue.waiting.append(request)
            if queue.busy:
                return
            queue.busy = True
        try:
            self._pool.submit(self._work, own, queue)
        except RuntimeError:
            _tell(queue.waiting, Verdict.UNAVAILABLE)

    # What a source's own thread does.

    def _work(self, own: GlobalId, queue: _RequestQueue) -> None:
        while True:
            with self._lock:
                batch = tuple(queue.waiting)
                queue.waiting.clear()
                if not batch:
                    queue.busy = False
                    if self._queues.get(own) is queue:
                        del self._queues[own]
                    return
            try:
                self._stage(self._checked(batch))
            except Exception as error:
                _tell(batch, *seen(error))

    def _checked(self, batch: Sequence[WebhookRequest]) -> list[WebhookRequest]:
        """The requests that pass their conditions; the others are answered."""
        webhook = batch[0].webhook
        others = [each for each in batch if each.webhook is not webhook]
        if others:
            # The source was changed while they waited.
            together = [each for each in batch if each.webhook is webhook]
            return self._checked(together) + self._checked(others)
        if webhook.check is None:
            return list(batch)
        held = self._checks.holds(webhook.item, webhook.check, batch)
        _tell([each for each, ok in zip(batch, held, strict=True) if not ok], Verdict.REFUSED)
        return [each for each, ok in zip(batch, held, strict=True) if ok]

    def _stage(self, batch: Sequence[WebhookRequest]) -> None:
        """Makes rows of requests and hands them to the thread that writes."""
        staged: list[tuple[WebhookRequest, RequestRows]] = []
        for each in batch:
            try:
                staged.append((each, rows_of(each.webhook.config, each.body, each.headers)))
            except TooManyRows as error:
                each.done(Verdict.TOO_LARGE, error.reason)
            except BadRequest as error:
                each.done(Verdict.MALFORMED, error.reason)
        if not self._writer.put(staged):
            _tell([each for each, _ in staged], Verdict.UNAVAILABLE)

    # The thread that writes.

    def _submit(self, together: Sequence[tuple[WebhookRequest, RequestRows]]) -> Callable[[], None]:
        """Queues the rows of one source as one write."""
        webhook = together[-1][0].webhook
        own = webhook.item.id
        with self._lock:
            news = self._sending[own] = self._counted.pop(own, SourceStatistics())
        rows = table(webhook.config, [rows for _, rows in together])
        counted = self._stored_of(own).after(replace(news, updates_staged=rows.num_rows))

        def record(conn: Connection) -> None:
            write_statistics(conn, own, counted)

        write = Write(
            write_id=f"webhook-{uuid.uuid4().hex}",
            appends={webhook.shard_id: staged_files(self._persist, webhook.shard_id, rows)},
            inserted=rows.num_rows,
            steps=(record,),
        )
        outcome = self._committer.submit(write)

        def settle() -> None:
            outcome.result()
            self._stored[own] = counted
            _tell([each for each, _ in together], Verdict.COMMITTED)

        return settle

    def _failed(
        self, together: Sequence[tuple[WebhookRequest, RequestRows]], error: Exception
    ) -> None:
        verdict, said = seen(error)
        own = together[-1][0].webhook.item.id
        self._stored.pop(own, None)
        with self._lock:
            if verdict is Verdict.GONE:
                self._known.pop(own, None)
            else:
                later = self._counted.get(own, SourceStatistics())
                self._counted[own] = later.after(self._sending[own])
        _tell([each for each, _ in together], verdict, said)

    def _stored_of(self, own: GlobalId) -> SourceStatistics:
        """The counters of a source that are durable."""
        known = self._stored.get(own)
        # Meanwhile a commit may have told more than what is read here.
        return known or self._stored.setdefault(own, self._states.reached(own).statistics)

    # What the system relations show.

    def listens(self, url: str, error: str | None) -> None:
        """Notes the URL at which requests come, or why none can."""
        self._listening = Listening(url, error, self._clock_ms())

    @property
    def listening(self) -> Listening:
        """The state of the ingress."""
        return self._listening

    def url(self, item: CatalogItem) -> str:
        """The URL to which senders post; without an ingress, the path alone."""
        return self._listening.url_of(PATH, item)

    def endpoint_notice(self, item: CatalogItem) -> str:
        """The notice at the source's creation: its URL, and the reason if none can come yet."""
        return self._listening.notice(f"Requests for {item.full_name} go to POST {self.url(item)}.")

    def urls(self) -> dict[GlobalId, str]:
        return {item.id: self.url(item) for item in self._items()}

    def status(self, item: CatalogItem) -> StatusChange | None:
        """The status of a webhook source; None for a source of another kind."""
        if not item.is_webhook:
            return None
        listening = self._listening
        status = (
            SourceStatus("running")
            if listening.error is None
            else SourceStatus("stalled", listening.error)
        )
        return StatusChange(max(listening.since_ms, item.created_ms), item.id, status)

    def statuses(self) -> list[StatusChange]:
        found = (self.status(item) for item in self._items())
        return [each for each in found if each is not None]

    def statistics(self) -> dict[GlobalId, SourceStatistics]:
        """The counters of all sources, including those that are not stored yet."""
        found = {}
        for item in self._items():
            news = self._counted.get(item.id, SourceStatistics())
            found[item.id] = self._stored_of(item.id).after(news)
        return found

    def _items(self) -> list[CatalogItem]:
        return [item for item in self._state().items.values() if item.is_webhook]


def _tell(
    batch: Sequence[WebhookRequest] | deque[WebhookRequest], verdict: Verdict, said: str = ""
) -> None:
    for each in batch:
        each.done(verdict, said or verdict.value)


_VERDICTS: Mapping[str, Verdict] = {
    "SLACKWATER_DEPENDENCY_DROPPED": Verdict.GONE,
    "SLACKWATER_TOO_MANY_REQUESTS": Verdict.FULL,
    "SLACKWATER_NO_SPACE": Verdict.FULL,
    "SLACKWATER_METASTORE_UNAVAILABLE": Verdict.UNAVAILABLE,
    "SLACKWATER_STORAGE_UNAVAILABLE": Verdict.UNAVAILABLE,
    "SLACKWATER_STATEMENT_INTERRUPTED": Verdict.UNAVAILABLE,
    "SLACKWATER_FENCED": Verdict.UNAVAILABLE,
    "Fenced": Verdict.UNAVAILABLE,
    "SLACKWATER_SECRET_NOT_TEXT": Verdict.REFUSED,
}


def seen(error: Exception) -> tuple[Verdict, str]:
    """The verdict and the text that a sender gets for an error.

    The log has the error's condition and never its text, which may have something of the request or
    of a secret.
    """
    condition = error.condition if isinstance(error, SlackwaterError) else type(error).__name__
    verdict = _VERDICTS.get(condition, Verdict.FAILED)
    if verdict is Verdict.FAILED:
        _log.error("request failed", error=condition)
    elif verdict is not Verdict.GONE:
        _log.warning("request not taken", error=condition)
    return verdict, verdict.value
