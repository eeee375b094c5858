"""The table of invariants names tests that there are, and the shares of histories add up."""

import math
import re
from pathlib import Path

import pytest
from tests.property.histories import (
    MOST_AT_ONCE,
    SHARES,
    THE_REST,
    divided,
    total,
    usual,
)

TESTS = Path(__file__).parents[2]
CONTROLLER = "property/test_storage_controller_properties.py"
MACHINES = {
    "The controller machine": CONTROLLER,
    "the controller machine": CONTROLLER,
    "the machine of crashes": CONTROLLER,
    "the machine of leaders": "property/test_storage_shell_properties.py",
    "the persist machine": "property/test_persist_state_machine.py",
    "the compute machine": "property/test_compute_controller_properties.py",
    "the simulation": "simulation/test_simulation.py",
}
NAMES = re.compile("|".join([*MACHINES, "`([^`]+)`"]))
DEFINED = re.compile(r"^ *def (\w+)\(", re.MULTILINE)


def rows():
    text = (TESTS / "property/INVARIANTS.md").read_text()
    return re.findall(r"^\| I(\d+) \| (.+) \|$", text, re.MULTILINE)


def test_each_invariant_has_one_row():
    assert [int(number) for number, _ in rows()] == [*range(1, 57)]


@pytest.mark.parametrize("text", [pytest.param(text, id=f"I{n}") for n, text in rows()])
def test_what_a_row_names_exists(text):
    file, named = None, 0
    for found in NAMES.finditer(text):
        name = found[1]
        if name is None:
            file = MACHINES[found[0]]
        elif name.endswith(".py"):
            file = name
        else:
            assert name in DEFINED.findall((TESTS / file).read_text()), f"{name} in {file}"
            named += 1
    assert named


def test_each_property_has_one_share():
    defined = []
    for file in sorted((TESTS / "property").glob("test_*.py")):
        text = file.read_text()
        assert len(re.findall(r"^@given\(", text, re.MULTILINE)) == text.count("@histories(")
        defined += DEFINED.findall(text)
    for name in SHARES:
        assert defined.count(name) == 1, name


@pytest.mark.parametrize("wanted", [300, 1_000, 99_999, 100_000, 1_234_567])
def test_the_shares_add_up(wanted):
    plans = divided(SHARES, THE_REST, wanted)
    assert total(SHARES, plans) == wanted
    for name, plan in plans.items():
        assert plan.size >= 1
        assert plan.size <= MOST_AT_ONCE or name == THE_REST


def test_too_few_histories_are_refused():
    with pytest.raises(ValueError, match="less than one for each property"):
        divided(SHARES, THE_REST, len(SHARES))


@pytest.mark.parametrize(("half", "of"), [(False, 1), (True, 2)])
def test_without_a_number_each_property_has_its_usual_one_or_half(half, of):
    plans = usual(SHARES, half=half)
    assert {name: (plan.runs, plan.size) for name, plan in plans.items()} == {
        name: (1, math.ceil(share.usual / of)) for name, share in SHARES.items()
    }
