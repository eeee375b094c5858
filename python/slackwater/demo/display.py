"""The output of the demo: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

ROWS_SHOWN = 8
PLAIN_STEPS = 10

Advance = Callable[[int, str], None]


@dataclass(slots=True)
class Display:
    """Prints the tour and remembers which checks failed."""

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    checks: int = 0
    failed: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        self.console.print()
        if self.console.is_terminal:
            self.console.rule(f"[bold]{escape(title)}", align="left")
        else:
            self.console.print(f"== {escape(title)}")

    def say(self, text: str) -> None:
        self.console.print(escape(text))

    def statement(self, text: str) -> None:
        """Shows a statement as it is about to run."""
        if self.console.is_terminal:
            self.console.print(Syntax(text + ";", "sql", theme="ansi_dark", word_wrap=True))
        else:
            for line in (text + ";").splitlines():
                self.console.print("sql> " + escape(line))

    def rows(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Shows the first rows of a result."""
        shown = [[_cell(value) for value in row] for row in rows[:ROWS_SHOWN]]
        if len(rows) > ROWS_SHOWN:
            shown.append(["…", *[""] * (len(names) - 1)])
        if self.console.is_terminal:
            table = Table(box=None, header_style="bold", pad_edge=False)
            for name in names:
                table.add_column(name)
            for row in shown:
                table.add_row(*[escape(cell) for cell in row])
            self.console.print(table)
            return
        for row in [list(names), *shown]:
            self.console.print("  " + escape(" | ".join(row)))

    def text(self, text: str) -> None:
        """Shows a result that is a text of several lines."""
        if self.console.is_terminal:
            self.console.print(Panel(escape(text), expand=False))
        else:
            for line in text.splitlines():
                self.console.print("  " + escape(line))

    def check(self, what: str, holds: bool, details: str = "") -> None:
        """Reports whether something that must hold does."""
        self.checks += 1
        if holds:
            self.console.print(f"[green]ok[/green]    {escape(what)}")
        else:
            self.failed.append(what)
            self.console.print(f"[red]FAILED[/red] {escape(what)} {escape(details)}")

    @contextlib.contextmanager
    def progress(self, title: str, total: int) -> Iterator[Advance]:
        """Shows progress; the block gets a function that takes the steps done, and a remark."""
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[remark]}"),
            )
            with Progress(*columns, console=self.console) as bar:
                task = bar.add_task(title, total=total, remark="")
                yield lambda steps, remark: bar.update(task, advance=steps, remark=remark)
            return
        yield self._plain_progress(title, total)

    def _plain_progress(self, title: str, total: int) -> Advance:
        done = 0

        def advance(steps: int, remark: str) -> None:
            nonlocal done
            before, done = done, done + steps
            if done * PLAIN_STEPS // total > before * PLAIN_STEPS // total:
                self.console.print(escape(f"  {title}: {done} of {total}, {remark}"))

        return advance


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)
