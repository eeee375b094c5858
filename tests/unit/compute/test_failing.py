"""What messages call a failing row."""

from slackwater.compute.engine import FailingColumn, FailingRow
from slackwater.compute.failing import MOST_CHARACTERS, MOST_COLUMNS, called
from slackwater.repr.dataflow_error import SOME_ROW
from slackwater.repr.errors import SlackwaterError

ERROR = SlackwaterError("DIVIDE_BY_ZERO", "22012", "Division by zero.", {})
NAMES = {"u1": "slackwater.default.a", "u2": "slackwater.default.b"}


def column(name, text="1", collection="u1", is_read=False):
    return FailingColumn(name, collection, is_read, text)


def row(*columns, is_group=False):
    return called(FailingRow(ERROR, is_group, columns), NAMES)


def test_a_row_is_its_columns():
    assert row(column("k"), column("v", "NULL")) == "the row (k = 1, v = NULL)"
    assert row(column("k"), is_group=True) == "the group (k = 1)"
    assert row() == SOME_ROW


def test_columns_with_one_name_are_told_apart_by_their_collections():
    joined = row(column("k"), column("k", "2", "u2"), column("k", "3", None), column("w", "4"))
    assert joined == "the row (a.k = 1, b.k = 2, k = 3, w = 4)"


def test_long_values_and_many_columns_are_cut():
    assert row(column("s", "x" * MOST_CHARACTERS)) == f"the row (s = {'x' * MOST_CHARACTERS})"
    cut = row(column("s", "x" * (MOST_CHARACTERS + 1)))
    assert cut == f"the row (s = {'x' * MOST_CHARACTERS}...)"
    many = [column(f"c{i}", is_read=i == 50) for i in range(60)]
    named = [*range(MOST_COLUMNS - 1), 50]
    assert row(*many) == f"the row ({', '.join(f'c{i} = 1' for i in named)}, ...)"
