"""Files of tests are modules that pytest imports by their names alone."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_no_two_files_of_tests_have_one_name():
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
