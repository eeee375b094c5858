"""The line of Python that says what a statement waits for."""

import io

from slackwater.spark.notices import WaitLine


def test_each_text_replaces_the_one_before_and_the_last_leaves_nothing():
    stream = io.StringIO()
    line = WaitLine(stream)
    for text in ("a long text", "short", ""):
        line.show(text)
    assert stream.getvalue() == "\ra long text\rshort      \r     \r"
