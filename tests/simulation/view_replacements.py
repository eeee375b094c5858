"""A view whose query is replaced again and again, while others read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.views import CHOSEN, choice, contents
from tests.simulation.workload import GONE, LATE, PAST, Clients
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

OTHERS = "SLACKWATER_CONCURRENT_CHANGE"


@dataclass(slots=True)
class ViewReplacements:
    """Who replaces the query of the view, and who reads it."""

    clients: Clients

    def replace(self) -> None:
        """CREATE REPLACEMENT, then APPLY REPLACEMENT, asked for again when no answer came."""
        self.clients.now_and_then(2.5, self.replace_once)

    def read(self) -> None:
        """Whatever the view is, it is what one of its queries answers over the table then."""
        self.clients.now_and_then(0.8, self._read)

    def replace_once(self, attempts: int = 4) -> None:
        """The next query; it is the view's for sure when that was answered."""
        ledger, scheduler = self.clients.world.ledger, self.clients.world.scheduler
        ledger.queries += 1
        number, name = ledger.queries, f"r{ledger.queries}"
        query = choice(number).query
        text = f"CREATE REPLACEMENT MATERIALIZED VIEW {name} FOR {CHOSEN} AS {query}"

        def create(place: Place) -> None:
            if not _is_there(place, name):
                place.sql(text)

        def apply(place: Place) -> None:
            # Asked again, it may have been done.
            if _is_there(place, name):
                place.sql(f"ALTER MATERIALIZED VIEW {CHOSEN} APPLY REPLACEMENT {name}")

        def drop(place: Place) -> None:
            if _is_there(place, name):
                place.sql(f"DROP MATERIALIZED VIEW {name}")

        for _ in range(attempts):
            if self.clients.ask("create the replacement", create, *LATE):
                break
            scheduler.sleep(scheduler.rng.uniform(0, 1))
        else:
            return self._until_done("drop the replacement", drop)
        for _ in range(attempts):
            if self.clients.ask("apply", apply, *LATE, OTHERS):
                scheduler.note(f"the query is number {number}")
                ledger.query = number
                return None
            scheduler.sleep(scheduler.rng.uniform(0, 1))
        return self._until_done("drop the replacement", drop)

    def _until_done(self, what: str, action: Any) -> None:
        while not self.clients.ask(what, action) and not self.clients.world.over:
            self.clients.world.scheduler.sleep(0.5)

    def _read(self) -> None:
        world = self.clients.world
        back_ms = world.scheduler.rng.choice((None, None, world.scheduler.rng.randrange(3000)))
        least = 0 if back_ms is not None else world.ledger.query

        def read(place: Place) -> None:
            relations = [{"id": place.item(name).id} for name in ("t1", CHOSEN)]
            body: dict[str, Any] = {"session": "reader/4", "relations": relations}
            if back_ms is not None:
                body["as_of"] = {"at": place.env.oracle.read_ts() - back_ms}
            bound = calls_of(place.coordinator)["/v1/bind"](body)
            at = bound["timestamp"]
            try:
                found = {name: contents(place, name, at) for name in ("t1", CHOSEN)}
            finally:
                calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})
            world.ledger.check_chosen(f"a read at {at}", found, least=least)

        past = () if back_ms is None else PAST
        self.clients.ask("read the chosen", read, *GONE, *LATE, *past)


def _is_there(place: Place, name: str) -> bool:
    # What an earlier request became is known only once the catalog is.
    place.env.catalog.resolve()
    return place.env.state.find("default", name) is not None
