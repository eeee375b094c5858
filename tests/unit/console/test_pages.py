"""Pages are functions of snapshots: golden HTML of each, an object in each state once.

`SLACKWATER_REWRITE=1` writes them anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.support.console.environments import (
    LONG,
    every_state,
    many,
    nobody_has_led,
    nobody_leads,
)

from slackwater.console import log, pages, relations
from slackwater.console.app import Renderer, Shown
from slackwater.console.objects import State, entries
from slackwater.console.picture import LARGEST, picture

GOLDEN = Path(__file__).parent / "pages"
RENDERER = Renderer()
LINES = (
    '{"timestamp": "2026-11-28T12:00:00Z", "level": "info", "event": "elected", "epoch": 7}',
    "no JSON <b>",
)


def first(snapshot, query=""):
    page = pages.first(snapshot, query)
    remark = pages.too_many(page.graph)
    return RENDERER.page(Shown("first.html", "Objects", page, "/", query, remark), snapshot)


def object_page(snapshot, name):
    page = pages.object_page(snapshot, name)
    return RENDERER.page(Shown("object.html", page.entry.name, page, page.entry.path), snapshot)


def of_tables(snapshot, page):
    return RENDERER.page(Shown("tables.html", page.title, page, "/x"), snapshot)


PAGES = {
    "first": lambda: first(every_state()),
    "first_filtered": lambda: first(every_state(), "hydrating"),
    "first_found_nothing": lambda: first(every_state(), "<nothing>"),
    "nobody_leads": lambda: first(nobody_leads()),
    "nobody_has_led": lambda: first(nobody_has_led()),
    "by_schema": lambda: first(many(LARGEST + 1, 3)),
    "object": lambda: object_page(every_state(), "shop.totals"),
    "object_failing": lambda: object_page(every_state(), "shop.broken"),
    "object_of_topic": lambda: object_page(every_state(), "shop.stopped"),
    "object_of_sink": lambda: object_page(every_state(), "shop.beginning"),
    "object_of_markup": lambda: object_page(every_state(), "u11"),
    "activity": lambda: of_tables(every_state(), pages.activity(every_state())),
    "storage": lambda: of_tables(every_state(), pages.storage(every_state())),
    "notices": lambda: of_tables(every_state(), pages.notices(every_state())),
    "log": lambda: of_tables(every_state(), pages.log(log.latest(LINES, "", 10), "", "")),
    "report": lambda: RENDERER.page(
        Shown("bundle.html", "Report", None, "/bundle", refreshes=False), every_state()
    ),
    "login": lambda: RENDERER.login("This is not the password."),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_it_was(name):
    found, golden = PAGES[name](), GOLDEN / f"{name}.html"
    if "SLACKWATER_REWRITE" in os.environ:
        golden.write_text(found)
    assert found == golden.read_text()


class Tags(HTMLParser):
    """The elements of a page, and the texts of attributes that a browser would run."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.names, self.scripts, self.ids = [], set(), [], []

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        given = dict(attributes)
        self.scripts += [name for name in given if name.startswith("on") or name == "style"]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "script":
            assert given["src"].startswith("/static/")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_has_no_element_of_users(name):
    tags = Tags()
    tags.feed(PAGES[name]())
    tags.close()
    assert tags.open == []
    assert tags.scripts == []
    assert sorted(set(tags.ids)) == sorted(tags.ids)
    assert not tags.names & {"b", "i", "img", "iframe", "object", "style"}


def test_each_state_is_there_once_and_the_worst_comes_first():
    found = entries(every_state())
    states = [each.health.state for each in found]
    assert set(states) == set(State)
    assert states == sorted(states, key=list(State).index)
    assert not any(each.id.startswith("s") for each in found)
    assert {each.name for each in found if each.health.state is State.PAUSED} == {
        "shop.idle",
        "shop.idle_source",
    }
    filled = {e.name: e.health.detail for e in found if e.health.state is State.HYDRATING}
    assert filled == {
        "shop.filling": "41 % of 100 000 rows",
        "shop.copied": "24 % of 5 000 messages",
        "shop.of_files": "7 % of 40 files",
        "shop.beginning": "31 % of 10 000 messages",
    }


def test_what_needs_attention_names_condition_time_and_advice():
    told = {each.title: each for each in pages.first(every_state()).attention}
    assert list(told) == ["shop.broken", "shop.stopped", "shop.stuck", "shop.large", "shop.clicks"]
    assert "(k = 3" in told["shop.broken"].reason
    assert told["shop.large"].condition == "OUT"
    assert told["shop.stopped"].condition == "SLACKWATER_KAFKA"
    assert told["shop.clicks"].condition == "retained log"
    assert all(each.since_ms is not None for each in told.values())
    assert all(told[name].advice for name in ("shop.broken", "shop.stopped", "shop.large"))


@pytest.mark.parametrize("name", ['<i>".<b>"&\'', f"shop.{LONG}", "shop.a/b?c#d", "u15"])
def test_an_object_is_found_by_its_name_and_by_its_id(name):
    found = pages.object_page(every_state(), name)
    assert name in (found.entry.name, found.entry.id)
    assert "/" not in found.entry.path.removeprefix("/objects/")


def test_two_objects_of_one_full_name_are_told_apart_by_their_ids():
    snapshot = many(2, 1)
    relation = "mz_internal.mz_object_fully_qualified_names"
    first_row, second_row = snapshot.rows(relation)
    rows = (
        {**first_row, "schema_name": "a.b", "name": "c"},
        {**second_row, "schema_name": "a", "name": "b.c"},
    )
    snapshot.tables[relation] = rows
    assert [each.path for each in entries(snapshot)] == ["/objects/u0", "/objects/u1"]


@pytest.mark.parametrize(
    ("count", "schemas", "nodes", "is_by_schema"),
    [
        (LARGEST, 1, LARGEST, False),
        (LARGEST + 1, 5, 5, True),
        (1000, LARGEST + 1, 0, True),
    ],
)
def test_a_picture_has_at_most_so_many_nodes(count, schemas, nodes, is_by_schema):
    snapshot = many(count, schemas)
    found = picture(snapshot, entries(snapshot))
    assert (len(found.nodes), found.is_by_schema) == (nodes, is_by_schema)


def test_the_picture_around_an_object_is_bounded():
    snapshot = many(200, 1)
    relation = "mz_internal.mz_object_dependencies"
    snapshot.tables[relation] = tuple(
        {"object_id": f"u{n}", "referenced_object_id": "u0"} for n in range(1, 200)
    )
    page = pages.object_page(snapshot, "u0")
    assert len(page.graph.picture.nodes) <= LARGEST


def test_a_relation_that_the_leader_lacks_is_left_out():
    state = every_state()
    assert "Statements under way" in of_tables(state, pages.activity(state))
    tables = {name: rows for name, rows in state.tables.items() if name != relations.ACTIVITY}
    older = replace(state, tables=tables)
    assert "Statements" not in of_tables(older, pages.activity(older))
