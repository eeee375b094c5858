"""The page of errors is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from slackwater.repr.errors_page import page

PAGE = Path(__file__).parents[3] / "docs" / "user" / "errors.md"


def test_page_is_current():
    command = "python -m slackwater.repr.errors_page > docs/user/errors.md"
    assert PAGE.read_text() == page(), f"run {command}"
