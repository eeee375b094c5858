"""The example of the documentation does what is written below it."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/internals/checkpoints.md"


def test_the_example_prints_what_the_page_says(new_database):
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"URL": new_database()})
    assert printed.getvalue() == expected
