"""Sources FROM CHANGEFEED: changes of feeds land, and a resolved timestamp is a checkpoint.

The changes of all requests that wait share a commit, and a request is answered when that is
durable. The changes then lie in the source's inbox, for its ingestion, which need not read the
landing while it runs. A resolved timestamp becomes durable by a transaction of its own, before
which the feed was told that all its changes are.

Source: spec checkpoint 5.4, 5.6, docs/decisions 0027.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slackwater.adapter.catalog.details import ChangefeedDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.sources.checkpoint_counts import CheckpointCounts
from slackwater.adapter.sources.feed_tables import feed_keys
from slackwater.adapter.sources.request_writer import RequestWriter
from slackwater.adapter.sources.webhooks import Done, Listening, Verdict, seen
from slackwater.adapter.writing.group_commit import GroupCommitter, Write
from slackwater.adapter.writing.staged_files import staged_files
from slackwater.checkpoints import GoingBackwards, Store
from slackwater.checkpoints.names import canonical
from slackwater.persist.client import PersistClient
from slackwater.repr.frontier import Timestamp
from slackwater.repr.hlc import Time
from slackwater.repr.ids import GlobalId
from slackwater.storage.changefeed.ingestion import ChangefeedProgress
from slackwater.storage.changefeed.landing import landed_rows
from slackwater.storage.changefeed.messages import (
    BadMessage,
    ChangeRecord,
    MessageTarget,
    Resolved,
    message_of,
)

PATH = "/api/changefeed/"
THREADS = 4


@dataclass(frozen=True, slots=True)
class Changefeed:
    """A source as requests see it. `keys` are the columns of the key of each table."""

    item: CatalogItem
    landing_shard: int
    keys: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A request of a feed."""

    source: Changefeed
    target: MessageTarget
    feed: str
    body: bytes
    done: Done


@dataclass(slots=True)
class Replay:
    """A request to try dead letters again. Once `done` is set, `tried` and `left` count them."""

    done: threading.Event = field(default_factory=threading.Event)
    tried: int = 0
    left: int = 0


class Inbox:
    """The changes that have landed in a source, with the times of their landing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[tuple[Timestamp, Sequence[ChangeRecord]]] = []
        self._read_before = Timestamp(0)
        self._is_certain = True
        self._replays: list[Replay] = []
        self.progress: Callable[[], ChangefeedProgress] | None = None

    def begin(self) -> None:
        """Makes the inbox certain again: its ingestion is about to read the landing."""
        with self._lock:
            self._is_certain = True

    def read_before(self, upper: Timestamp) -> None:
        """Leaves out changes that landed before `upper`, up to which the landing was read."""
        with self._lock:
            self._read_before = upper

    def put(self, landed_at: Timestamp, rows: Sequence[ChangeRecord]) -> None:
        with self._lock:
            self._entries.append((landed_at, rows))

    def invalidate(self) -> None:
        """Makes the inbox uncertain: something may have landed that is not in it."""
        with self._lock:
            self._is_certain = False

    def replay(self) -> Replay:
        """Asks for dead letters to be tried again."""
        replay = Replay()
        with self._lock:
            self._replays.append(replay)
        return replay

    def replay_requests(self) -> int:
        """The number of requests to try dead letters again."""
        with self._lock:
            return len(self._replays)

    def replayed(self, replay_requests: int, tried: int, left: int) -> None:
        """Ends so many requests: so many dead letters were tried, and so many are left."""
        with self._lock:
            granted, self._replays = (
                self._replays[:replay_requests],
                self._replays[replay_requests:],
            )
        for replay in granted:
            replay.tried, replay.left = tried, left
            replay.done.set()

    def take(self) -> Sequence[ChangeRecord] | None:
        """The changes since the last call; None: they are not certain, look at the landing."""
        with self._lock:
            if not self._is_certain:
                return None
            entries, self._entries = self._entries, []
        return [row for at, rows in entries if at >= self._read_before for row in rows]


class Changefeeds:
    """Takes the requests of all feeds. Thread-safe; `start` it once.

    `wake` lets the ingestion of a source look now. `listening` says where requests come.
    """

    def __init__(
        self,
        state: Callable[[], CatalogState],
        *,
        persist: PersistClient,
        committer: GroupCommitter,
        store: Store,
        wake: Callable[[GlobalId], None],
        listening: Callable[[], Listening],
        counts: CheckpointCounts,
    ) -> None:
        self._state = state
        self._persist = persist
        self._committer = committer
        self._store = store
        self._wake = wake
        self._listening = listening
        self._counts = counts
        self._lock = threading.Lock()
        self._inboxes: dict[GlobalId, Inbox] = {}
        self._known: dict[GlobalId, tuple[int, Changefeed]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "changefeed")
        self._writer = RequestWriter(
            "changefeed-landing", lambda each: each.source.item.id, self._submit, self._failed
        )

    def start(self) -> None:
        self._writer.start()

    def stop(self) -> None:
        """Ends the threads. Requests that wait are written; later ones are UNAVAILABLE."""
        self._pool.shutdown(wait=False)
        self._writer.stop()

    def find(self, schema: str, name: str) -> Changefeed | None:
        """The source of exactly that name, if feeds may send to it."""
        state = self._state()
        item = state.find(schema, name)
        details = None if item is None else item.details
        if item is None or not isinstance(details, ChangefeedDetails):
            return None
        if (item.schema_name, item.name) != (schema, name) or details.config.path:
            return None
        known = self._known.get(item.id)
        if known is None or known[0] != state.revision:
            landing = state.items.get(details.exports[details.landing])
            if landing is None or landing.shard_id is None:
                return None
            keys = feed_keys(state, item)
            known = (state.revision, Changefeed(item, landing.shard_id, keys))
            self._known[item.id] = known
        return known[1]

    def inbox(self, source_id: GlobalId) -> Inbox:
        """The inbox of a source."""
        with self._lock:
            return self._inboxes.setdefault(source_id, Inbox())

    def forget(self, source_id: GlobalId) -> None:
        """Forgets the inbox of a source that does not run any more."""
        with self._lock:
            self._inboxes.pop(source_id, None)
            self._known.pop(source_id, None)

    def post(self, request: FeedRequest) -> None:
        """Takes a request; its `done` is called once, in another thread."""
        try:
            self._pool.submit(self._take, request)
        except RuntimeError:
            request.done(Verdict.UNAVAILABLE, Verdict.UNAVAILABLE.value)

    def endpoint_notice(self, item: CatalogItem) -> str:
        """The notice at the source's creation: its URL, and the reason if none can come yet."""
        at = self._listening()
        url = at.url_of(PATH, item)
        return at.notice(f"Changefeeds into {item.full_name} go to {url}?feed=<name>.")

    def changefeed_progress(self) -> dict[GlobalId, ChangefeedProgress]:
        """The progress of the sources that run."""
        with self._lock:
            found = [(each, inbox.progress) for each, inbox in self._inboxes.items()]
        return {each: progress() for each, progress in found if progress is not None}

    # What the threads of the pool do.

    def _take(self, request: FeedRequest) -> None:
        try:
            feed = canonical(request.feed)
            message = message_of(request.target, request.body, feed, request.source.keys)
            if isinstance(message, Resolved):
                self._advance(request, feed, message.time)
            elif not message.rows:
                request.done(Verdict.COMMITTED, "")
            elif not self._writer.put([(request, message.rows)]):
                request.done(Verdict.UNAVAILABLE, Verdict.UNAVAILABLE.value)
        except BadMessage as error:
            request.done(Verdict.MALFORMED, error.reason)
        except GoingBackwards as error:
            self._counts.went_backwards(request.source.item.id)
            said = f"{error.proposed} is behind {error.newest}, which the feed has resolved before"
            request.done(Verdict.BACKWARDS, said)
        except ValueError:
            request.done(Verdict.MALFORMED, "the feed's name is none")
        except Exception as error:
            request.done(*seen(error))

    def _advance(self, request: FeedRequest, feed: str, resolved: Time) -> None:
        item = request.source.item
        with self._counts.timed("advance", item.id):
            self._store.advance(item.id, feed, resolved)
        self._wake(item.id)
        request.done(Verdict.COMMITTED, "")

    # The thread that writes.

    def _submit(
        self, together: Sequence[tuple[FeedRequest, Sequence[ChangeRecord]]]
    ) -> Callable[[], None]:
        """Queues the changes of one source as one write."""
        source = together[-1][0].source
        changes = [row for _, rows in together for row in rows]
        rows, shard_id = landed_rows(changes), source.landing_shard
        write = Write(
            write_id=f"changefeed-{uuid.uuid4().hex}",
            appends={shard_id: staged_files(self._persist, shard_id, rows)},
            inserted=rows.num_rows,
        )
        outcome = self._committer.submit(write)

        def settle() -> None:
            self.inbox(source.item.id).put(outcome.result().timestamp, changes)
            self._counts.landed(source.item.id, len(changes))
            for request, _ in together:
                request.done(Verdict.COMMITTED, "")

        return settle

    def _failed(
        self, together: Sequence[tuple[FeedRequest, Sequence[ChangeRecord]]], error: Exception
    ) -> None:
        verdict, said = seen(error)
        if verdict in (Verdict.UNAVAILABLE, Verdict.FAILED):
            self.inbox(together[-1][0].source.item.id).invalidate()
        for request, _ in together:
            request.done(verdict, said)
