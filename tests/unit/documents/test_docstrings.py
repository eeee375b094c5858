"""Docstrings name the thing first: none of the package begins as a question does."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "python/slackwater"
FILES = sorted(PACKAGE.rglob("*.py"))
QUESTION = re.compile(r"(What|Who|Whose|How|Where|Which|See)\b")


def docstrings(tree):
    """Those of modules, classes and functions, and the texts below constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            match each:
                case ast.Expr(ast.Constant(str(text))):
                    yield each.lineno, text.strip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_docstring_begins_as_a_question_does(path):
    found = [
        f"{line}: {text.splitlines()[0]}"
        for line, text in docstrings(ast.parse(path.read_text()))
        if QUESTION.match(text)
    ]
    assert found == []
