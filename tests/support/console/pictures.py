"""The pictures of the documentation: pages of a shop that is not there, as a browser draws them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tests.support.applications.application import ROOT
from tests.support.console.asgi import request
from tests.support.console.browser import WIDTH
from tests.support.console.shop import at_work, failing, fresh, late, left

from slackwater.console.app import Access, application
from slackwater.console.security import Hosts
from slackwater.console.snapshot import Snapshot

FOLDER = ROOT / "docs" / "user" / "console"
TAKEN_OF = FOLDER / "taken_of.json"
"""For each picture the digests of what it was taken of, and of the picture itself."""
HOST = "127.0.0.1:8070"
_STATIC = re.compile(r'"(/static/[^"]+)"')


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of an environment down to `height`; `drawn` is what a script draws into it."""

    snapshot: Snapshot
    path: str
    height: int
    drawn: str = "main"


PICTURES = {
    "fresh": Picture(fresh(), "/", 900, "#freshness canvas"),
    "late": Picture(late(), "/objects/shop.conversion", 1180, "#freshness canvas"),
    "at_work": Picture(at_work(), "/activity", 980),
    "failed": Picture(failing(), "/", 800, "#freshness canvas"),
    "nobody_leads": Picture(left(), "/", 560, "#freshness canvas"),
}


@dataclass(frozen=True, slots=True)
class _Standing:
    """Stands for the thread that asks a leader: the leader always answers the same."""

    known: Snapshot

    def snapshot(self, _relations):
        return self.known


def answers(picture):
    """All that the console answers to a browser that opens the page, by path."""
    app = application(_Standing(picture.snapshot), Access(Hosts.of("127.0.0.1", ())))
    page = request(app, picture.path)
    files = sorted(set(_STATIC.findall(page.text)))
    return {picture.path: page, **{path: request(app, path) for path in files}}


def digest(*contents):
    """A digest of contents, in their order."""
    found = hashlib.sha256()
    for each in contents:
        found.update(hashlib.sha256(each).digest())
    return found.hexdigest()


def of_answers(given):
    """The digest of what a picture is taken of."""
    return digest(*(part for path in sorted(given) for part in (path.encode(), given[path].body)))


def draw(visit, picture, given):
    """Opens the page in a browser, and gives its picture as PNG."""

    def answer(route):
        asked = route.request
        if "hx-request" in asked.headers:
            route.fulfill(status=204)
            return
        got = given[asked.url.partition(HOST)[2]]
        route.fulfill(status=got.status, headers=got.headers, body=got.body)

    visit.page.route("**/*", answer)
    visit.open(picture.path).page.locator(picture.drawn).first.wait_for()
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": picture.height}
    return visit.page.screenshot(full_page=True, clip=clip)
