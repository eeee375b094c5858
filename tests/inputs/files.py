"""The files of SQL with which Spark tests itself, as statements.

They are in the test jar of Spark SQL, which `make inputs` fetches, with the rows of the tables that
Spark's own tests make before each file.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

JAR = Path(__file__).parents[2] / ".spark-inputs" / "spark-sql_2.13-tests.jar"
FOLDER = "sql-tests/inputs/"
_QUERY = re.compile(r"[\s(]*(select|with|values|table|from)\b", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_WIDE_ROWS = 1000
"""So many rows of ``tenk1``; ``onek`` has no more."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """`settings` are those that the file asks for. Statements have no comments between lines."""

    name: str
    settings: Mapping[str, str]
    statements: Sequence[str]

    def names(self, table: str) -> bool:
        """Whether a statement may read the table."""
        return any(re.search(rf"\b{table}\b", each, re.IGNORECASE) for each in self.statements)


def input_files(jar: Path = JAR) -> Iterator[InputFile]:
    """All files, without those of scripts, which have no queries of their own."""
    with zipfile.ZipFile(jar) as opened:
        texts = {
            name.removeprefix(FOLDER): opened.read(name).decode()
            for name in sorted(opened.namelist())
            if name.startswith(FOLDER) and name.endswith(".sql")
        }
    for name, text in texts.items():
        if not name.startswith("scripting/"):
            imported = [texts[each] for each in _directives(text, "IMPORT")]
            statements = [each for part in (*imported, text) for each in _statements(part)]
            settings = {k: v for part in (*imported, text) for k, v in _settings(part)}
            yield InputFile(name, settings, statements)


def common_tables(jar: Path = JAR) -> dict[str, pa.Table]:
    """The tables that files may read without making them."""
    numbers = range(1, 101)
    letters = [[(n, f"{'abcde'[n - 1]}{row}") for n in range(1, 7 - row)] for row in range(1, 6)]
    arrays = [[1, 2, 3], [2, 3, 4]]
    columns = "unique1 unique2 two four ten twenty hundred thousand twothousand fivethous tenthous"
    wide = pa.schema(
        [
            *((name, pa.int32()) for name in f"{columns} odd even".split()),
            *((name, pa.string()) for name in ("stringu1", "stringu2", "string4")),
        ]
    )
    aggtest = pa.schema([("a", pa.int32()), ("b", pa.float32())])
    integers = pa.list_(pa.int32())
    return {
        "testdata": pa.table(
            {
                "key": pa.array(numbers, pa.int32()),
                "value": pa.array(map(str, numbers), pa.string()),
            }
        ),
        "arraydata": pa.table(
            {
                "arraycol": pa.array(arrays, integers),
                "nestedarraycol": pa.array([[each] for each in arrays], pa.list_(integers)),
            }
        ),
        "mapdata": pa.table({"mapcol": pa.array(letters, pa.map_(pa.int32(), pa.string()))}),
        "aggtest": _tabbed(jar, "agg", aggtest),
        "onek": _tabbed(jar, "onek", wide),
        "tenk1": _tabbed(jar, "tenk", wide).slice(0, _WIDE_ROWS),
    }


def is_query(statement: str) -> bool:
    return _QUERY.match(statement) is not None


def _tabbed(jar: Path, name: str, schema: pa.Schema) -> pa.Table:
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"test-data/postgresql/{name}.data").decode()
    rows = zip(*csv.reader(text.splitlines(), delimiter="\t"), strict=True)
    columns = [
        pa.array(values, pa.string()).cast(field.type)
        for values, field in zip(rows, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _directives(text: str, word: str) -> list[str]:
    return re.findall(rf"^--{word}\s+(.+?)\s*$", text, re.MULTILINE)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in _directives(text, "SET"):
        for entry in re.split(r",(?=\s*spark\.)", line):
            name, _, value = entry.partition("=")
            yield name.strip(), value.strip()


def _statements(text: str) -> Iterator[str]:
    """A delimited part is one statement; else one ends at a semicolon that is not escaped."""
    parts = re.split(r"^--QUERY-DELIMITER-(?:START|END).*$", text, flags=re.MULTILINE)
    for number, part in enumerate(parts):
        code = _COMMENT.sub("", part)
        for each in [code] if number % 2 else re.split(r"(?<!\\);", code):
            statement = each.replace("\\;", ";").strip().removesuffix(";").strip()
            if statement:
                yield statement
