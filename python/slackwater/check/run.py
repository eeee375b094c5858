"""The command: opens the environment, and prints what is found in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slackwater.check.verification import Counts, Environment, Verification
from slackwater.findings import Finding, line
from slackwater.persist.locations import Location, parse_location
from slackwater.persist.read_only import ReadOnlyMetastore
from slackwater.repr.errors import LOG_FILE, SlackwaterError

DEFAULT_LOCATION = "slackwater-environment"
_NOWHERE = "check --location and --metastore"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`is_deep`: also the rows of all parts are read. `is_json`: for programs."""

    is_deep: bool = False
    is_json: bool = False


def examine(location: str | None, metastore: str | None, options: CheckOptions) -> int:
    """Prints every finding and returns the exit status: 1 if one failed, else 0.

    Nothing is made or changed, whoever leads the environment meanwhile.
    """
    console = Console(highlight=False, soft_wrap=True, stderr=options.is_json)
    findings: list[Finding] = []
    counts = Counts()
    with _progress(console) as progress:
        for finding in _findings(location, metastore, options, progress, counts):
            findings.append(finding)
            if not options.is_json:
                progress.console.print(line(finding))
    failed = sum(finding.outcome == "FAIL" for finding in findings)
    if options.is_json:
        print(_as_json(findings, counts, options))
    else:
        console.print(_summary(failed, counts))
    return 1 if failed else 0


def _findings(
    location: str | None,
    metastore: str | None,
    options: CheckOptions,
    progress: Progress,
    counts: Counts,
) -> Iterator[Finding]:
    try:
        place = parse_location(location or DEFAULT_LOCATION, os.environ)
        if place.is_local and not place.local.is_dir():
            yield Finding("location", "FAIL", f"{place.local} does not exist", _NOWHERE)
            return
        url = place.given_metastore(metastore, os.environ)
        opened = ReadOnlyMetastore.at(url)
        blobs = place.blobs(os.environ)
    except SlackwaterError as error:
        yield Finding("location", "FAIL", error.message, "see docs/user/settings.md")
        return
    yield Finding("location", "ok", _shown(place))
    if opened is None:
        yield Finding("metastore", "FAIL", "there is no file with a metastore", _NOWHERE)
        return
    task = progress.add_task("parts", total=None)
    try:
        yield from Verification(
            Environment(opened, blobs, place.local / LOG_FILE),
            options.is_deep,
            lambda done, total: progress.update(task, completed=done, total=total),
            counts,
        ).findings()
    finally:
        opened.close()


def _shown(place: Location) -> str:
    return str(place.local) if place.is_local else place.uri


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """A bar on a terminal, which goes with the block; nothing elsewhere."""
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


def _summary(failed: int, counts: Counts) -> str:
    verdict = "everything is in order" if failed == 0 else f"{failed} checks failed"
    size = decimal(counts.bytes)
    return f"{verdict}: {counts.shards} shards, {counts.parts} parts, {counts.rows} updates, {size}"


def _as_json(findings: list[Finding], counts: Counts, options: CheckOptions) -> str:
    told = {
        "deep": options.is_deep,
        "failed": sum(finding.outcome == "FAIL" for finding in findings),
        "counts": asdict(counts),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(told, indent=2)
