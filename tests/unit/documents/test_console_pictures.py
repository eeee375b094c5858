"""The pictures of the documentation show the console as it is: none is older than its page.

`SLACKWATER_REWRITE=1` takes those anew of which the page, or a file that it loads, has changed.
Pixels are not compared: other fonts and browsers make others.
"""

from __future__ import annotations

import json
import os

import pytest
from tests.support.console.browser import chromium, visit
from tests.support.console.pictures import (
    FOLDER,
    HOST,
    PICTURES,
    TAKEN_OF,
    answers,
    digest,
    draw,
    of_answers,
)

PAGES = FOLDER.parent
ADVICE = "SLACKWATER_REWRITE=1 .venv/bin/python -m pytest -n 0 tests/unit/documents -k picture"


def known():
    """What is written beside the pictures."""
    return json.loads(TAKEN_OF.read_text()) if TAKEN_OF.exists() else {}


def of_file(name):
    """The digest of a picture that is there."""
    path = FOLDER / f"{name}.png"
    return digest(path.read_bytes()) if path.exists() else None


def is_current(name, given):
    """Whether the picture was taken of what the console answers now."""
    return known().get(name) == {"page": of_answers(given), "picture": of_file(name)}


def keep(name, given, content):
    """Writes a picture, and what it was taken of."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.png").write_bytes(content)
    taken = {**known(), name: {"page": of_answers(given), "picture": digest(content)}}
    kept = {name: taken[name] for name in sorted(taken) if name in PICTURES}
    TAKEN_OF.write_text(json.dumps(kept, indent=2) + "\n")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_of_the_page_as_it_is(name, tmp_path):
    given = answers(PICTURES[name])
    if "SLACKWATER_REWRITE" in os.environ and not is_current(name, given):
        with chromium() as browser, visit(browser, f"http://{HOST}", tmp_path) as seen:
            keep(name, given, draw(seen, PICTURES[name], given))
    assert is_current(name, given), f"The page has changed. Take its picture anew: {ADVICE}"


def test_each_picture_is_on_a_page_of_the_documentation():
    shown = {path.stem for path in FOLDER.glob("*.png")}
    assert shown == set(PICTURES) == set(known())
    texts = [path.read_text() for path in PAGES.rglob("*.md")]
    for name in PICTURES:
        assert any(f"../console/{name}.png)" in text for text in texts), name
