"""Pages that are generated from the code say what it says."""

import re
from pathlib import Path

import pytest
from docs.generators import errors_page, metrics_page, relations_page, settings_page

from slackwater.adapter.system.metric_families import FAMILIES
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.persist.leadership import LEASE_MS
from slackwater.repr.errors import SlackwaterError
from slackwater.server.ingress.settings import PREFIX, read

ROOT = Path(__file__).parents[3]
PAGES = {
    "errors": errors_page,
    "metrics": metrics_page,
    "settings": settings_page,
    "system_relations": relations_page,
}
HIDDEN = {"internal", "implied"}
"""Those that nobody sets but the coordinator's own sessions, and what activates the jar."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name):
    module = PAGES[name]
    path = ROOT / f"docs/user/{name}.md"
    assert path.read_text() == module.page(), (
        f"run python -m {module.__name__} > docs/user/{name}.md"
    )


def test_each_metric_has_a_row_and_a_meaning():
    page = metrics_page.page()
    for family in FAMILIES:
        assert family.help.strip(), family.name
        assert page.count(f"| `{family.name}` |") == 1


def test_each_relation_is_described():
    assert set(relations_page.DESCRIPTIONS) == {relation.name for relation in SYSTEM_RELATIONS}


def test_each_setting_is_described():
    """Those that the sources name, of Scala and of Python."""
    sources = [
        *(ROOT / "jvm_shim/src/main").rglob("*.scala"),
        *(ROOT / "python").rglob("*.py"),
    ]
    named = re.compile(r'"spark\.slackwater\.([A-Za-z.]*[A-Za-z])"')
    found = {name for path in sources for name in named.findall(path.read_text())}
    assert found - HIDDEN == set(settings_page.APPLICATION)


def test_each_setting_of_the_ingress_is_described():
    with pytest.raises(SlackwaterError) as caught:
        read({"unknown": "1"})
    known = re.findall(rf"{re.escape(PREFIX)}([a-z.]+[a-z])", caught.value.message)
    assert set(known) - {"unknown"} == set(settings_page.INGRESS)


def test_the_default_lease_is_the_one_that_is_described():
    assert settings_page.APPLICATION["lease"].default == f"`{LEASE_MS // 1000}s`"
