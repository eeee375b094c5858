"""The pages for users name what there is, and those of statements have one shape."""

import re
from functools import cache
from pathlib import Path

import pytest
import typer
from docs.generators import settings_page
from tests.support.applications.pages import blocks, examples

from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.adapter.transactions import BLOCK_LIMIT_BYTES
from slackwater.cli import app
from slackwater.compute.replica import BACKGROUND_HYDRATIONS
from slackwater.planner.parser.statements import ObjectKind, ShowKind
from slackwater.planner.parser.variables import VARIABLES
from slackwater.repr.errors import conditions
from slackwater.server.admission import AdmissionLimits

DOCS = Path(__file__).parents[3] / "docs/user"
PAGES = sorted(DOCS.rglob("*.md"))
STATEMENTS = sorted(set((DOCS / "statements").glob("*.md")) - {DOCS / "statements/index.md"})
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
OF_PROCESSES = (
    "SLACKWATER_KAFKA",
    "SLACKWATER_METASTORE_PASSWORD",
    "SLACKWATER_METASTORE_PASSWORD_FILE",
)
CONDITION = re.compile(r"`(SLACKWATER_[A-Z_]+)`(?: \((\w{5})\))?")


@cache
def prose(path):
    """A page without its fenced blocks."""
    return FENCED.sub("", path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_conditions_have_the_states_of_the_catalogue(path):
    known = conditions()
    for condition, state in CONDITION.findall(prose(path)):
        if condition in OF_PROCESSES:
            continue
        assert condition in known, condition
        assert state in ("", known[condition]["sqlState"]), condition


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_settings_and_relations_exist(path):
    text = path.read_text()
    relations = {f"{each.schema_name}.{each.name}" for each in SYSTEM_RELATIONS}
    assert set(re.findall(r"\bmz_(?:catalog|internal)\.mz_\w+", text)) <= relations
    ours = "spark.slackwater."
    settings = {ours + name for name in settings_page.APPLICATION}
    settings |= {f"{ours}ingress.{name}" for name in settings_page.INGRESS}
    found = set(re.findall(r"\bspark\.slackwater\.[A-Za-z.]*[A-Za-z]", text))
    assert found - {f"{ours}ingress"} <= settings


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)
def test_a_page_of_a_statement_has_syntax_then_an_example_that_runs(path):
    text = path.read_text()
    first, *_ = blocks(text)
    assert first.language == "syntax"
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "Syntax"
    assert headings[-1] == "Errors"
    assert [answer for _, answer in examples(text) if answer]


def test_every_page_has_one_title():
    for path in PAGES:
        assert len(re.findall(r"^# ", prose(path), re.MULTILINE)) == 1, path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_each_text_is_the_answer_to_an_example(path):
    text = path.read_text()
    answers = [answer for _, answer in examples(text) if answer is not None]
    assert answers == [block.text for block in blocks(text) if block.language == "text"]


@pytest.mark.parametrize("page", ["show", "drop", "comment"])
def test_the_kinds_of_objects_are_in_the_syntax(page):
    syntax = blocks((DOCS / f"statements/{page}.md").read_text())[0].text
    kinds = {kind.value for kind in (ShowKind if page == "show" else ObjectKind)}
    # There are no indexes in this version, and a column is no object that could be dropped.
    kinds -= {"INDEX"} | ({"COLUMN"} if page == "drop" else set())
    assert [kind for kind in kinds if kind not in syntax] == []


def test_the_page_of_settings_has_all_variables():
    text = (DOCS / "settings.md").read_text()
    assert [name for name in VARIABLES if f"`{name}`" not in text] == []


def test_the_page_of_commands_has_all_commands_and_their_options():
    text = (DOCS / "commands.md").read_text()
    commands = typer.main.get_command(app).commands
    assert [name for name in commands if f"`slackwater {name}" not in text] == []
    options = {
        option
        for command in commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("-")
    }
    assert [option for option in sorted(options) if not re.search(rf"{option}\b", text)] == []


def test_the_page_of_limits_has_their_values():
    text = (DOCS / "limits.md").read_text()
    limits = AdmissionLimits()
    for name, value in {
        "statements of all applications": str(limits.statements),
        "one request": f"{limits.request_bytes // 1024**2} MiB",
        "what the INSERTs of a transaction block": f"{BLOCK_LIMIT_BYTES // 1024**2} MiB",
        "views that are hydrated": str(BACKGROUND_HYDRATIONS),
    }.items():
        assert re.search(rf"^\| {name}[^|]* \| {value} \|", text, re.MULTILINE), name
