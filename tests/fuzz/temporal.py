"""Random temporal filters, whose bounds are mostly among the times of a case."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.query import both

NOW = "mz_now()"
FIRST, LAST = 2, 8
"""Between these are the bounds that are the same for all rows."""
NEVER = 2**63 - 1

_MIDNIGHT_MS = 1_709_164_800_000
"""2024-02-29, the one among the moments that rows have."""


def conditions(random: Random, scope: Sequence[tuple[str, str]]) -> list[str]:
    """What has to hold of the time, and of the columns of `scope`."""

    def bound() -> str:
        return _bound(random, *random.choice(scope))

    begin = random.choice([f"{NOW} >= {bound()}", f"{bound()} < {NOW}"])
    end = random.choice([f"{NOW} < {bound()}", f"{bound()} >= {NOW}", f"NOT ({NOW} > {bound()})"])
    match random.randrange(8):
        case 0:
            return [begin]
        case 1 | 2:
            return [end]
        case 3:
            return [f"{NOW} BETWEEN {bound()} AND {bound()}"]
        case 4:
            return [f"{bound()} BETWEEN {NOW} AND {random.randint(FIRST, LAST)}"]
        case 5:
            return [f"{NOW} = {bound()}"]
        case _:
            return [begin, end]


def of_number(random: Random, number: str) -> str:
    """A condition on an expression of an integer type."""
    shifted = f"{number} + {random.randint(FIRST, LAST)}"
    return f"{NOW} {random.choice(['<', '<=', '>', '>=', '='])} {shifted}"


def _bound(random: Random, column: str, kind: str) -> str:
    """A time that a row says, an integer; NULL where the column is."""
    shift = random.randint(FIRST, LAST)
    match kind:
        case "integer" | "long":
            value = f"{column} + {shift}"
            return random.choice(
                [
                    value,
                    value,
                    f"CAST({column} AS BIGINT) + {shift}",
                    f"greatest({value}, 5)",
                    f"coalesce({value}, {NEVER})",
                ]
            )
        case "timestamp":
            since = _MIDNIGHT_MS - shift
            return both(f"unix_millis({column}) - {since}", f"epoch_ms({column}) - {since}")
        case "date":
            return f"day({column}) - {random.choice([20, 22, 24])}"
        case "string":
            return f"length({column}) + {shift}"
        case "boolean":
            return f"CASE WHEN {column} THEN {shift} ELSE 5 END"
        case _:
            return str(shift)
