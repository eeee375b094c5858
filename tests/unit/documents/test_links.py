"""Relative links of the documents lead to files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", "sql", "tests") for path in (ROOT / folder).rglob("*.md")),
    ]
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = FENCED.sub("", path.read_text())
    assert [link for link in LINK.findall(text) if not (path.parent / link).exists()] == []


def test_the_first_page_stays_short():
    """A stranger reads it to its end; what is long has a page of its own."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
