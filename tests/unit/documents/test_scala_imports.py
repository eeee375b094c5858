"""The packages of the shim use each other one way, in the order that AGENTS.md gives."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
BASE = "org.apache.spark.sql.slackwater"
SOURCES = ROOT / "jvm_shim/src/main/scala" / BASE.replace(".", "/")
# The package of what differs between Spark's minors uses none of ours, and each may use it.
SHIMS = "shims"
IMPORT = re.compile(rf"^import {re.escape(BASE)}\.([a-z.]+?)\.(?:[A-Z_{{])", re.MULTILINE)


def order() -> list[str]:
    text = (ROOT / "AGENTS.md").read_text()
    listed = text.partition("each package using those before it: ")[2].partition(" |")[0]
    return re.findall(r"`([a-z.]+)`", listed)


def imports() -> dict[str, set[str]]:
    """The packages that each package uses, of all below the one of the shim."""
    used: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.scala"):
        package = ".".join(path.parent.relative_to(SOURCES).parts)
        used.setdefault(package, set()).update(IMPORT.findall(path.read_text()))
    del used[""]  # what Spark calls first: it puts the others into a session
    return used


def test_every_package_has_its_place() -> None:
    assert sorted(order()) == sorted(imports())


def test_packages_use_those_before_them() -> None:
    places = {package: place for place, package in enumerate(order())}
    back = {
        f"{package} uses {other}"
        for package, used in imports().items()
        for other in used - {SHIMS, package}
        if places[other] >= places[package]
    }
    assert back == set()
