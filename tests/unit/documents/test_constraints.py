"""Every version that an installation from this folder gets is pinned."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]


def required() -> list[Requirement]:
    """What pyproject.toml asks for by name, of users and of developers."""
    text = (ROOT / "pyproject.toml").read_text()
    parts = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    found = re.findall(r'"([^"]+)"', parts)
    return [Requirement(one) for one in found if not one.startswith("slackwater[")]


@pytest.mark.parametrize("wanted", required(), ids=lambda wanted: wanted.name)
def test_a_requirement_has_a_pin_that_it_allows(wanted: Requirement) -> None:
    pins = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
    assert pins, f"{wanted} has no version in constraints.txt; run `make constraints`"
    for pin in pins:
        (version,) = pin.specifier
        assert version.operator == "=="
        assert wanted.specifier.contains(version.version), f"{pin} is not {wanted}"


def test_pins_name_no_place() -> None:
    assert not [pin for pin in PINS if pin.url]
