"""No Scala source depends on the locale of the machine.

In a Turkish locale the capital of `i` is `İ`, and in others digits are not those of ASCII: words
of a statement would not be recognised, and keys not found.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "jvm_shim" / "src" / "main"

_CASE = r"\bto(?:Upper|Lower)Case\b(?!\s*\(\s*Locale\s*\.\s*ROOT\s*\))"
_FORMAT = r"(?:\.\s*|\bString\s*\.\s*)format(?:ted)?\b(?!\s*\(\s*Locale\s*\.\s*ROOT\b)"
_INTERPOLATOR = r"(?<![\w\"])f\"(?!\")|(?<![\w\"])f\"\"\""
OF_THE_MACHINE = re.compile(rf"{_CASE}|{_FORMAT}|{_INTERPOLATOR}")
"""Calls that take the locale of the machine. The pattern goes over the ends of lines."""


def places(text: str) -> list[int]:
    """The lines on which `text` depends on a locale."""
    return [text.count("\n", 0, found.start()) + 1 for found in OF_THE_MACHINE.finditer(text)]


def test_no_source_depends_on_the_locale():
    sources = sorted(SOURCES.rglob("*.scala"))
    assert sources
    found = [f"{path.name}:{line}" for path in sources for line in places(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "word.toUpperCase",
        "word\n  .toLowerCase",
        "word.toUpperCase()",
        "word.toUpperCase(\n  Locale.getDefault)",
        "words.map(_.toLowerCase)",
        "word toUpperCase",
        "String.format(pattern, number)",
        "pattern\n .format(number)",
        'f"$number%03d"',
        'f"""$number%d"""',
    ],
)
def test_what_depends_on_it_is_found(text):
    assert places(text)


@pytest.mark.parametrize(
    "text",
    [
        "word.toUpperCase(Locale.ROOT)",
        "word.toUpperCase(\n  Locale.ROOT\n)",
        "String.format(Locale.ROOT, pattern, number)",
        'asOf.fold("f")(identity)',
        's"of $name"',
        "val format = 1",
        "image.equalsIgnoreCase(upper)",
    ],
)
def test_what_does_not_is_not(text):
    assert places(text) == []
