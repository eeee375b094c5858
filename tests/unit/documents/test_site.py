"""The documentation builds as a site without a warning, and loads nothing from other hosts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|object|use)\b[^>]*?"
    r"(?:src|href|data)=[\"']?(?:https?:)?//[^ >\"']*"
    r"|@import[^;]*//[^;]*|url\([\"']?(?:https?:)?//[^)]*"
)
"""What a browser loads by itself; links that a reader follows are none of these."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_it_builds_without_a_warning(site):
    assert (site / "index.html").exists()


def test_no_page_loads_anything_from_another_host(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]
    assert len(pages) > 10
    assert not [found for page in pages for found in LOADED.findall(page.read_text())]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<link rel=stylesheet href=//fonts.example/x.css>",
        "<style>@import url(https://fonts.example/x.css);</style>",
    ],
)
def test_what_is_loaded_is_found(text):
    assert LOADED.findall(text)


def test_no_page_has_what_scripts_would_fetch(site):
    """The theme fetches Mermaid, and the stars of a repository, where a page asks for them."""
    asked = re.compile(r'class="?mermaid|data-md-component="?source')
    assert not [page for page in site.rglob("*.html") if asked.search(page.read_text())]
