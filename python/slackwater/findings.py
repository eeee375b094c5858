"""Findings of commands that check something, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.markup import escape

Outcome = Literal["ok", "warn", "FAIL", "skip"]

NAME_WIDTH = 12
TEXT_WIDTH = 62


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` says what to do when the outcome is not ok."""

    name: str
    outcome: Outcome
    text: str
    advice: str = ""


def printable(text: str) -> str:
    """The text in one line, without characters that do something to a terminal."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)


def line(finding: Finding) -> str:
    """The finding as one line, in the markup of rich."""
    mark = {"ok": "green", "warn": "yellow", "FAIL": "red", "skip": "dim"}[finding.outcome]
    advice = f"  {finding.advice}" if finding.advice and finding.outcome != "ok" else ""
    name = escape(f"{finding.name:<{NAME_WIDTH}}")
    text = escape(f"{printable(finding.text):<{TEXT_WIDTH}}")
    return f"{name} {text} [{mark}]{finding.outcome:<4}[/{mark}]{escape(advice)}".rstrip()
