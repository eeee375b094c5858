"""What Spark tells of Python that failed in an executor."""

from __future__ import annotations

import pytest

from slackwater.spark.python_errors import failure

WORKER = "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py"

OF_A_ROW = f"""Traceback (most recent call last):
  File "{WORKER}", line 3625, in main
    process()
    ~~~~~~~^^
  File "{WORKER}", line 3613, in process
    serializer.dump_stream(out_iter, outfile)
  File "/home/ada/tides.py", line 4, in scaled
    return 100 // v
           ~~~~^^~~
ZeroDivisionError: integer division or modulo by zero
"""
SIMPLIFIED = """Traceback (most recent call last):
  File "<stdin>", line 4, in <lambda>
tides.TooLow: below zero:
  the level is -1
"""
OF_ANOTHER = """Traceback (most recent call last):
  File "<stdin>", line 2, in level
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<stdin>", line 5, in level
ValueError: no level
"""
WITHOUT_FRAMES = "ValueError: no level\n"
NO_ARROW = f"""Traceback (most recent call last):
  File "{WORKER}", line 3602, in main
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "{WORKER}", line 3004, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
"""
OTHER_VERSION = f"""Traceback (most recent call last):
  File "{WORKER}", line 3568, in main
    check_python_version(infile)
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", line 77, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python differs.
"""
MISSING_IN_A_FUNCTION = """Traceback (most recent call last):
  File "<stdin>", line 2, in scaled
ImportError: cannot import name 'scale' from 'tides'
"""


@pytest.mark.parametrize(
    ("traceback", "line"),
    [
        (
            OF_A_ROW,
            "ZeroDivisionError: integer division or modulo by zero"
            " (line 4 of /home/ada/tides.py, in scaled)",
        ),
        (SIMPLIFIED, "tides.TooLow: below zero: (line 4 of <stdin>, in <lambda>)"),
        (OF_ANOTHER, "ValueError: no level (line 5 of <stdin>, in level)"),
        (WITHOUT_FRAMES, "ValueError: no level"),
        ("", "an exception"),
    ],
)
def test_a_function_that_fails_over_its_arguments(traceback, line):
    assert failure(traceback).is_of_values
    assert str(failure(traceback)) == line


@pytest.mark.parametrize("traceback", [NO_ARROW, OTHER_VERSION, MISSING_IN_A_FUNCTION])
def test_a_python_that_lacks_something_says_nothing_of_the_values(traceback):
    assert not failure(traceback).is_of_values
