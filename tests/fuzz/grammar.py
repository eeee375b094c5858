"""Random queries that Spark and DuckDB answer alike.

Where ORDER BY decides which rows there are, it goes by all columns that are selected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.fuzz import aggregates, functions, temporal
from tests.fuzz.kinds import KINDS, is_map
from tests.fuzz.names import chosen, quoted
from tests.fuzz.query import Query, both

Scope = Sequence[tuple[str, str]]
"""The columns that an expression may read, with their kinds."""

LITERALS: Mapping[str, Sequence[str]] = {
    "integer": ("0", "1", "2", "(-1)"),
    "long": (both("1L", "1::BIGINT"), both("2L", "2::BIGINT")),
    "decimal": ("CAST(0.25 AS DECIMAL(10, 2))", "CAST(1.00 AS DECIMAL(10, 2))"),
    "double": (both("0.25D", "0.25::DOUBLE"), both("0.0D", "0.0::DOUBLE")),
    "string": ("'a'", "'ab'", "''"),
    "lcase": (both("'A' COLLATE UTF8_LCASE", "'a'"), both("'b' COLLATE UTF8_LCASE", "'b'")),
    "unicode": (both("'a' COLLATE UNICODE", "'a'"), both("'b' COLLATE UNICODE", "'b'")),
    "date": ("DATE '2024-02-28'", "DATE '2024-02-29'"),
    "timestamp": (
        both("TIMESTAMP '2024-02-29 00:00:00Z'", "TIMESTAMP '2024-02-29 00:00:00'"),
        both("TIMESTAMP '2024-02-28 23:30:00Z'", "TIMESTAMP '2024-02-28 23:30:00'"),
    ),
    "ntz": (both("TIMESTAMP_NTZ '2024-02-29 00:00:00'", "TIMESTAMP '2024-02-29 00:00:00'"),),
    "boolean": ("true", "false"),
    "struct": (both("named_struct('a', 1, 'b', 'x')", "{'a': 1, 'b': 'x'}"),),
    "array": (both("array(1)", "[1]"), both("array(2, 1)", "[2, 1]")),
    "map": (both("map('x', 1)", "MAP {'x': 1}"),),
    "twins": (
        both("named_struct('a', 1, 'A', 'x', 'a.b', 2)", "{'a_1': 1, 'A_2': 'x', 'a.b_3': 2}"),
    ),
    "nothing": (both("named_struct()", "{'__empty': NULL::BOOLEAN}"),),
    "maps": (both("map('x', map('y', 1))", "MAP {'x': MAP {'y': 1}}"),),
    "same": (both("struct(1 AS id, 'x' AS id)", "{'id_1': 1, 'id_2': 'x'}"),),
    "char": ("'a  '", "'ab '"),
    "varchar": ("'a'", "'ab'"),
}
SHIFTED = "+05:30"
"""The time zone of some sessions; in DuckDB a shift does what it does."""


_CALL = re.compile(r"\w+\([^()«]*\)")
"""That of one aggregate, in the words of both engines."""


@dataclass(slots=True)
class Grammar:
    """Queries over the relations, of a session with these settings."""

    random: Random
    relations: Sequence[Query]
    settings: Mapping[str, str]
    _sources: list[list[Query]] = field(default_factory=list)
    """Those of the queries that are being made, the innermost last."""

    def query(self, depth: int = 2) -> Query:
        self._sources.append([])
        try:
            return self.random.choice(FORMS)(self, depth)
        finally:
            self._sources.pop()

    # Sources

    def _read(self, depth: int) -> tuple[str, Query]:
        """How the query that is being made names a new source of it."""
        plain = depth <= 0 or self.random.random() < 0.5
        source = self.random.choice(self.relations) if plain else self.query(depth - 1)
        self._sources[-1].append(source)
        return f"@{len(self._sources[-1]) - 1}", source

    def _made(
        self, text: str, items: Sequence[tuple[str, str]], where: Sequence[str] = ()
    ) -> Query:
        """The query that selects `items`, each with its kind."""
        names = chosen(self.random, len(items))
        return Query(
            text,
            {name: kind for name, (_, kind) in zip(names, items, strict=True)},
            tuple(self._sources[-1]),
            tuple(
                f"{each} AS {quoted(name)}" for name, (each, _) in zip(names, items, strict=True)
            ),
            tuple(where),
        )

    # Forms

    def projection(self, depth: int) -> Query:
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        return self._made(
            f"SELECT @items FROM {ref} AS x@where", self._values(scope), self._where(scope)
        )

    def valid(self, depth: int) -> Query:
        """Rows while they are valid; in part of the queries the time is a column on its way."""
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        conditions = temporal.conditions(self.random, scope)
        if self.random.random() < 0.8:
            return self._made(
                f"SELECT @items FROM {ref} AS x@where", self._values(scope), conditions
            )
        named = [each.replace(temporal.NOW, "x.n") for each in conditions]
        timed = f"(SELECT x.*, {temporal.NOW} AS n FROM {ref} AS x) AS x"
        return self._made(f"SELECT @items FROM {timed}@where", self._values(scope), named)

    def distinct(self, depth: int) -> Query:
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        items = self._values(scope)
        return self._made(
            f"SELECT DISTINCT @items FROM {ref} AS x@where", items, self._where(scope)
        )

    def subqueries(self, depth: int) -> Query:
        """EXISTS, IN and scalar subqueries in WHERE and among what is selected."""
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        items = list(self._values(scope))
        where = []
        for _ in range(self.random.randint(1, 2)):
            match self.random.randrange(4):
                case 0:
                    items.append(self._scalar_subquery(scope, depth))
                case 1:
                    items.append(
                        (f"coalesce({self._subpredicate(scope, depth)}, false)", "boolean")
                    )
                case 2:
                    where.append(self._subpredicate(scope, depth))
                case _:
                    other = self._predicate(scope)
                    where.append(f"{self._subpredicate(scope, depth)} OR {other}")
        return self._made(f"SELECT @items FROM {ref} AS x@where", items, where)

    def join(self, depth: int) -> Query:
        left, x = self._read(depth)
        right, y = self._read(depth)
        scopes = scope_of(x, "x"), scope_of(y, "y")
        word = self.random.choice(
            ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]
        )
        # Of a side that is kept, rows come and go only below the join or above it.
        timed = {"JOIN": [*scopes[0], *scopes[1]], "LEFT JOIN": scopes[1], "RIGHT JOIN": scopes[0]}
        met = self._meeting(*scopes)
        if word in timed:
            met = self._in_time(met, timed[word])
        on = "" if word == "CROSS JOIN" else f" ON {met}"
        text = f"SELECT @items FROM {left} AS x {word} {right} AS y{on}"
        both_sides = [*scopes[0], *scopes[1]]
        if self.random.random() < 0.3:
            third, z = self._read(0)
            word = self.random.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
            scope = scope_of(z, "z")
            text += f" {word} {third} AS z ON {self._meeting(both_sides, scope)}"
            both_sides += scope
        elif on and self.random.random() < 0.15:
            text += f" AND {self._subpredicate(both_sides, depth)}"
        return self._made(f"{text}@where", self._values(both_sides), self._where(both_sides))

    def half_join(self, depth: int) -> Query:
        left, x = self._read(depth)
        right, y = self._read(depth)
        word = self.random.choice([both("LEFT SEMI", "SEMI"), both("LEFT ANTI", "ANTI")])
        scope = scope_of(x, "x")
        on = self._meeting(scope, scope_of(y, "y"))
        return self._made(
            f"SELECT @items FROM {left} AS x {word} JOIN {right} AS y ON {on}", self._values(scope)
        )

    def group(self, depth: int) -> Query:
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        keys = self.random.sample(list(scope), self.random.randint(0, min(2, len(scope))))
        if keys and self.random.random() < 0.3:
            keys[0] = self._value(scope)
        items = [*keys, *(self._aggregate(scope) for _ in range(self.random.randint(1, 3)))]
        text = f"SELECT @items FROM {ref} AS x@where"
        if keys:
            text += f" GROUP BY {', '.join(each for each, _ in keys)}"
        if self.random.random() < 0.3:
            text += f" HAVING {self._having(scope)}"
        return self._made(text, items, self._where(scope))

    def grouping_sets(self, depth: int) -> Query:
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        keys = self.random.sample(list(scope), min(2, len(scope)))
        names = [each for each, _ in keys]
        a, b = names[0], names[-1]
        sets = self.random.choice(
            [
                f"ROLLUP ({', '.join(names)})",
                f"CUBE ({', '.join(names)})",
                f"GROUPING SETS (({', '.join(names)}), ({a}), ())",
                f"GROUPING SETS (({a}), ({b}))",
            ]
        )
        items = [*keys, (f"CAST(grouping({a}) AS INT)", "integer"), self._aggregate(scope)]
        # Of no rows Spark has no total.
        some = both("", " HAVING count(*) > 0")
        text = f"SELECT @items FROM {ref} AS x@where GROUP BY {sets}{some}"
        return self._made(text, items, self._where(scope))

    def set_operation(self, depth: int) -> Query:
        left, x = self._read(depth)
        right, y = self._read(depth)
        items = self._values(scope_of(x, "x"))
        scope = scope_of(y, "y")
        others = [(self._scalar(scope, kind), kind) for _, kind in items]
        word = self.random.choice(
            ["UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        names = chosen(self.random, len(items))
        one, other = (_selected(each, names) for each in (items, others))
        text = f"SELECT {one} FROM {left} AS x {word} SELECT {other} FROM {right} AS y"
        columns = {name: kind for name, (_, kind) in zip(names, items, strict=True)}
        return Query(text, columns, tuple(self._sources[-1]))

    def top(self, depth: int) -> Query:
        ref, source = self._read(depth)
        items = self._ordered(source)
        limit = self.random.choice(
            ["LIMIT 1", "LIMIT 2", "LIMIT 3 OFFSET 1", "OFFSET 2", "LIMIT 0"]
        )
        order = self._order(items)
        return self._made(f"SELECT @items FROM {ref} AS x@where ORDER BY {order} {limit}", items)

    def some(self, depth: int) -> Query:
        """LIMIT and OFFSET without ORDER BY: by the columns that are read, ascending.

        Of several columns a query above may read only some.
        """
        ref, source = self._read(depth)
        whole = self._ordered(source)
        most = 1 if len(self._sources) > 1 else len(whole)
        chosen = set(self.random.sample(whole, self.random.randint(1, most)))
        items = [each for each in whole if each in chosen]
        limit = self.random.choice(["LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1", "OFFSET 1"])
        order = ", ".join(f"{each} NULLS FIRST" for each, _ in items)
        ordered = both("", f" ORDER BY {order}")
        return self._made(f"SELECT @items FROM {ref} AS x{ordered} {limit}", items)

    def periods(self, depth: int) -> Query:
        """Groups by windows of time, and by sessions."""
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        moments = [each for each in scope if each[1] in ("timestamp", "ntz")]
        if not moments:
            return self.group(depth)
        moment, kind = self.random.choice(moments)
        key = self.random.choice(scope)
        where = [f"{moment} IS NOT NULL", *self._where(scope)]
        calls = [self._aggregate(scope) for _ in range(self.random.randint(1, 2))]
        if self.random.random() < 0.4:
            bucket = f"time_bucket(INTERVAL '2 hours', {moment})"
            items = [
                key,
                (both("window.start", bucket), kind),
                (both("window.end", f"{bucket} + INTERVAL '2 hours'"), kind),
                *calls,
            ]
            groups = both(f"window({moment}, '2 hours')", bucket)
            text = f"SELECT @items FROM {ref} AS x@where GROUP BY {key[0]}, {groups}"
            return self._made(text, items, where)
        items = [
            key,
            (both("session_window.start", f"min({moment})"), kind),
            (both("session_window.end", f"max({moment}) + INTERVAL '45 minutes'"), kind),
            *calls,
        ]
        window = f"OVER (PARTITION BY {key[0]} ORDER BY {moment})"
        is_near = f"{moment} - lag({moment}) {window} <= INTERVAL '45 minutes'"
        begun = f"(SELECT x.*, CASE WHEN {is_near} THEN 0 ELSE 1 END AS b FROM {ref} AS x@where)"
        numbered = f"(SELECT x.*, sum(x.b) {window} AS n FROM {begun} AS x) AS x"
        session = f"session_window({moment}, '45 minutes')"
        text = both(
            f"SELECT @items FROM {ref} AS x@where GROUP BY {key[0]}, {session}",
            f"SELECT @items FROM {numbered} GROUP BY {key[0]}, x.n",
        )
        return self._made(text, items, where)

    def first_of_each(self, depth: int) -> Query:
        ref, source = self._read(depth)
        items = self._ordered(source)
        partition = self.random.choice(items)[0]
        window = f"PARTITION BY {partition} ORDER BY {self._order(items)}"
        inner = ", ".join(f"{each} AS c{i}" for i, (each, _) in enumerate(items))
        numbered = f"SELECT {inner}, row_number() OVER ({window}) AS n FROM {ref} AS x"
        text = f"SELECT @items FROM ({numbered}) AS x WHERE n <= {self.random.randint(1, 2)}"
        return self._made(text, [(f"x.c{i}", kind) for i, (_, kind) in enumerate(items)])

    def window(self, depth: int) -> Query:
        ref, source = self._read(depth)
        items = self._ordered(source)
        return self._made(f"SELECT @items FROM {ref} AS x", [*items, *self._window_calls(items)])

    def lateral(self, depth: int) -> Query:
        left, x = self._read(depth)
        right, y = self._read(depth)
        scope, inner = scope_of(x, "x"), scope_of(y, "y")
        meeting = self._in_time(self._equality(scope, inner) or "true", inner)
        value, kind = self.random.choice(self._ordered(y, "y"))
        match self.random.randrange(3):
            case 0:
                value, kind = self._aggregate(inner)
                rest = ""
            case 1:
                rest = f" ORDER BY {value} NULLS FIRST LIMIT {self.random.randint(1, 2)}"
            case _:
                rest = ""
        below = f"(SELECT {value} AS e FROM {right} AS y WHERE {meeting}{rest}) AS z"
        word = self.random.choice([", LATERAL", " CROSS JOIN LATERAL", " LEFT JOIN LATERAL"])
        on = " ON true" if "LEFT" in word else ""
        text = f"SELECT @items FROM {left} AS x{word} {below}{on}"
        return self._made(text, [*self._values(scope), ("z.e", kind)])

    def exploded(self, depth: int) -> Query:
        ref, source = self._read(depth)
        scope = scope_of(source, "x")
        array = self._scalar(scope, "array")
        if self.random.random() < 0.5:
            view = both(
                f" LATERAL VIEW explode({array}) e AS e",
                f", LATERAL (SELECT unnest({array}) AS e) AS e",
            )
        else:
            view = both(
                f" LATERAL VIEW OUTER explode({array}) e AS e",
                f" LEFT JOIN LATERAL (SELECT unnest({array}) AS e) AS e ON true",
            )
        items = [*self._values(scope), ("e.e", "integer")]
        return self._made(f"SELECT @items FROM {ref} AS x{view}", items)

    def shared(self, depth: int) -> Query:
        """One subquery that is read twice."""
        ref, source = self._read(depth)
        inner = self._values(scope_of(source, "x"))
        names = chosen(self.random, len(inner))
        kinds = [kind for _, kind in inner]
        scopes = [
            [(f"{a}.{quoted(name)}", kind) for name, kind in zip(names, kinds, strict=True)]
            for a in ("a", "b")
        ]
        selected = _selected(inner, names)
        word = self.random.choice(["JOIN", "LEFT JOIN"])
        text = (
            f"WITH q AS (SELECT {selected} FROM {ref} AS x) SELECT @items FROM q AS a"
            f" {word} q AS b ON {self._meeting(*scopes)}"
        )
        return self._made(text, self._values([*scopes[0], *scopes[1]]))

    # Parts of queries

    def _values(self, scope: Scope) -> list[tuple[str, str]]:
        return [self._value(scope) for _ in range(self.random.randint(1, 4))]

    def _value(self, scope: Scope) -> tuple[str, str]:
        if self.random.random() < 0.7:
            return self.random.choice(scope)
        kind = self.random.choice([*(kind for _, kind in scope), *KINDS])
        return self._scalar(scope, kind), kind

    def _ordered(self, source: Query, alias: str = "x") -> list[tuple[str, str]]:
        found = [each for each in scope_of(source, alias) if KINDS[each[1]].ordered]
        return found or [("1", "integer")]

    def _order(self, items: Scope) -> str:
        """By all of them: rows that are equal in it are equal."""
        chosen = self.random.sample(list(items), len(items))
        ways = ("NULLS FIRST", "NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST")
        return ", ".join(f"{each} {self.random.choice(ways)}" for each, _ in chosen)

    def _where(self, scope: Scope) -> list[str]:
        found = [self._predicate(scope)] if self.random.random() < 0.3 else []
        return [*found, *self._times(scope)]

    def _times(self, scope: Scope) -> list[str]:
        """Now and then a temporal filter."""
        return temporal.conditions(self.random, scope) if self.random.random() < 0.08 else []

    def _in_time(self, condition: str, scope: Scope) -> str:
        return " AND ".join([condition, *self._times(scope)])

    def _having(self, scope: Scope) -> str:
        value, kind = self._aggregate(scope)
        if "lambda" in value:
            # DuckDB has none there.
            value, kind = "count(*)", "long"
        if self.random.random() < 0.15:
            number = value if kind in ("integer", "long") else "count(*)"
            return temporal.of_number(self.random, number)
        test = self.random.choice(["count(*) > 1", f"{value} IS NOT NULL"])
        if KINDS[kind].ordered and kind != "boolean":
            test = self.random.choice([test, f"{value} > {self._literal(kind)}"])
        return test

    def _meeting(self, left: Scope, right: Scope) -> str:
        """The condition of a join."""
        equality = self._equality(left, right)
        if equality is None or self.random.random() < 0.15:
            return self._predicate([*left, *right])
        if self.random.random() < 0.3:
            return f"{equality} AND {self._predicate([*left, *right])}"
        return equality

    def _equality(self, left: Scope, right: Scope) -> str | None:
        pairs = [(a, b) for a, k in left for b, other in right if k == other and not is_map(k)]
        if not pairs:
            return None
        a, b = self.random.choice(pairs)
        if self.random.random() < 0.2:
            return both(f"{a} <=> {b}", f"{a} IS NOT DISTINCT FROM {b}")
        return f"{a} = {b}"

    def _subpredicate(self, scope: Scope, depth: int) -> str:
        ref, source = self._read(depth - 1)
        alias = f"s{len(self._sources[-1])}"
        inner = scope_of(source, alias)
        equality = self._equality(scope, inner)
        word = self.random.choice(["", "NOT "])
        pairs = [(a, b) for a, k in scope for b, other in inner if k == other and KINDS[k].ordered]
        if pairs and self.random.random() < 0.6:
            a, b = self.random.choice(pairs)
            asked = equality if equality and self.random.random() < 0.3 else "true"
            where = f" WHERE {self._in_time(asked, inner)}"
            if self.random.random() < 0.6:
                return f"{a} {word}IN (SELECT {b} FROM {ref} AS {alias}{where})"
            return f"{a} > (SELECT min({b}) FROM {ref} AS {alias}{where})"
        condition = equality or self._predicate(inner)
        if self.random.random() < 0.3:
            condition += f" AND {self._predicate([*scope, *inner])}"
        condition = self._in_time(condition, inner)
        return f"{word}EXISTS (SELECT 1 FROM {ref} AS {alias} WHERE {condition})"

    def _scalar_subquery(self, scope: Scope, depth: int) -> tuple[str, str]:
        ref, source = self._read(depth - 1)
        alias = f"s{len(self._sources[-1])}"
        inner = scope_of(source, alias)
        value, kind = self._aggregate(inner)
        equality = self._equality(scope, inner)
        asked = equality if equality and self.random.random() < 0.6 else "true"
        where = f" WHERE {self._in_time(asked, inner)}"
        return f"(SELECT {value} FROM {ref} AS {alias}{where})", kind

    def _aggregate(self, scope: Scope) -> tuple[str, str]:
        column, kind = self.random.choice(scope)
        found = aggregates.calls(
            self.random, column, kind, scope, self.settings["spark.sql.ansi.enabled"] == "true"
        )
        value, result = self.random.choice(found)
        if _CALL.fullmatch(value) and self.random.random() < 0.2:
            value = f"{value} FILTER (WHERE {self._predicate(scope)})"
        return value, result

    def _window_calls(self, items: Scope) -> list[tuple[str, str]]:
        """Not two by place: which of equal rows has which place in either is luck."""
        places, others = self._windows(items)
        found = [self.random.choice([*places, *others])]
        if self.random.random() < 0.5:
            found.append(self.random.choice(others))
        return found

    def _windows(self, items: Scope) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Calls that ask for the place of a row, and those that give equal rows one value."""
        column, kind = self.random.choice(items)
        partition = f"PARTITION BY {self.random.choice(items)[0]}"
        if self.random.random() < 0.2:
            partition = ""
        total = f"{partition} ORDER BY {self._order(items)}"
        peers = f"{partition} ORDER BY {self.random.choice(items)[0]} NULLS FIRST"
        rows = self.random.choice(
            [
                "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
                "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            ]
        )
        places = [
            (f"row_number() OVER ({total})", "integer"),
            (f"ntile(2) OVER ({total})", "integer"),
            (f"lag({column}) OVER ({total})", kind),
            (f"lead({column}, 2) OVER ({total})", kind),
            (f"first_value({column}) OVER ({total} {rows})", kind),
            (f"last_value({column}) OVER ({total} {rows})", kind),
            (f"nth_value({column}, 2) OVER ({total} {rows})", kind),
            (f"count({column}) OVER ({total} {rows})", "long"),
            (self._known_value("first_value", column, f"{total} {rows}"), kind),
            (self._known_value("last_value", column, f"{total} {rows}"), kind),
        ]
        others = [
            (f"rank() OVER ({peers})", "integer"),
            (f"dense_rank() OVER ({peers})", "integer"),
            (f"percent_rank() OVER ({peers})", "double"),
            (f"cume_dist() OVER ({peers})", "double"),
            (f"count(*) OVER ({peers})", "long"),
            (f"max({column}) OVER ({partition})", kind),
            (f"min({column}) OVER ({peers})", kind),
            (f"count({column}) OVER ({partition})", "long"),
        ]
        if kind in ("integer", "long"):
            for window, found in (
                (f"{total} {rows}", places),
                (peers, others),
                (partition, others),
            ):
                text = f"sum({column}) OVER ({window})"
                found.append((both(text, f"CAST({text} AS BIGINT)"), "long"))
            others += [
                (f"median({column}) OVER ({partition})", "double"),
                (f"avg({column}) OVER ({partition})", "double"),
                (f"bit_or({column}) OVER ({peers})", kind),
            ]
            near = f"{partition} ORDER BY {column} NULLS FIRST"
            frame = "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW"
            others.append((f"count(*) OVER ({near} {frame})", "long"))
        return places, others

    def _known_value(self, function: str, column: str, window: str) -> str:
        return both(
            f"{function}({column}) IGNORE NULLS OVER ({window})",
            f"{function}({column} IGNORE NULLS) OVER ({window})",
        )

    # Expressions

    def _literal(self, kind: str) -> str:
        return self.random.choice(LITERALS[kind])

    def _of(self, scope: Scope, kind: str) -> str:
        """A column of the kind, or a literal where there is none."""
        found = [each for each, other in scope if other == kind]
        return self.random.choice(found) if found else self._literal(kind)

    def _scalar(self, scope: Scope, kind: str) -> str:
        value = self._of(scope, kind)
        own = list(functions.calls(kind, lambda other: self._of(scope, other)))
        if own and self.random.random() < 0.3:
            return self.random.choice(own)
        return self.random.choice([value, *self._computed(scope, kind, value)])

    def _computed(self, scope: Scope, kind: str, value: str) -> list[str]:
        def of(other: str) -> str:
            return self._of(scope, other)

        minutes = 330 if self.settings["spark.sql.session.timeZone"] == SHIFTED else 0
        moment, number, array = of("timestamp"), of("integer"), of("array")
        shifted = f"{moment} + INTERVAL {minutes} MINUTE"
        case = f"CASE WHEN {self._leaf(scope)} THEN {value} ELSE {self._literal(kind)} END"
        match kind:
            case "integer":
                return [
                    f"{value} + 1",
                    f"{value} % 2",
                    f"coalesce({value}, 0)",
                    case,
                    f"length({of('string')})",
                    both(f"array_size({array})", f"len({array})"),
                    both(f"get({array}, 0)", f"({array})[1]"),
                    f"({of('struct')}).a",
                    f"({of('map')})['x']",
                    f"day({of('date')})",
                    both(f"hour({moment})", f"hour({shifted})"),
                    self._number_of(of("string")),
                ]
            case "long":
                return [f"{value} - 1", f"CAST({number} AS BIGINT)", case]
            case "decimal":
                return [f"{value} + 1.25", f"-{value}", f"CAST({number} AS DECIMAL(10, 2))", case]
            case "double":
                half = both("0.5D", "0.5::DOUBLE")
                return [f"-{value}", f"{value} + {half}", f"CAST({number} AS DOUBLE)", case]
            case "string":
                named = both(f"CAST({number} AS STRING)", f"CAST({number} AS VARCHAR)")
                return [
                    f"{value} || 'b'",
                    f"upper({value})",
                    f"substr({value}, 1, 1)",
                    f"({of('struct')}).b",
                    named,
                    case,
                ]
            case "date":
                on = both(f"CAST({moment} AS DATE)", f"CAST({shifted} AS DATE)")
                return [both(f"date_add({value}, 1)", f"({value} + 1)"), on, case]
            case "timestamp" | "ntz":
                return [f"{value} + INTERVAL '1' DAY", case]
            case "boolean":
                return [self._leaf(scope), self._leaf(scope)]
            case "struct":
                text = of("string")
                return [
                    both(
                        f"named_struct('a', {number}, 'b', {text})",
                        f"{{'a': {number}, 'b': {text}}}",
                    )
                ]
            case "twins":
                text = of("string")
                return [
                    both(
                        f"named_struct('a', {number}, 'A', {text}, 'a.b', 1)",
                        f"{{'a_1': {number}, 'A_2': {text}, 'a.b_3': 1}}",
                    )
                ]
            case "same":
                text = of("string")
                pair = f"{{'id_1': {number}, 'id_2': {text}}}"
                return [both(f"struct({number} AS id, {text} AS id)", pair)]
            case "map":
                return [value, f"({of('maps')})['x']"]
            case "maps":
                inner = of("map")
                return [value, both(f"map('z', {inner})", f"MAP {{'z': {inner}}}")]
            case "array":
                return [both(f"array({number}, 1)", f"[{number}, 1]")]
            case _:
                return [value]

    def _number_of(self, text: str) -> str:
        """In some sessions a text that is no number is an error, in others it is NULL."""
        cast = "TRY_CAST" if self.settings["spark.sql.ansi.enabled"] == "true" else "CAST"
        return both(f"{cast}({text} AS INT)", f"TRY_CAST({text} AS INTEGER)")

    def _predicate(self, scope: Scope) -> str:
        one = self._leaf(scope)
        match self.random.randrange(6):
            case 0:
                return f"({one} AND {self._leaf(scope)})"
            case 1:
                return f"({one} OR {self._leaf(scope)})"
            case 2:
                return f"NOT ({one})"
            case _:
                return one

    def _leaf(self, scope: Scope) -> str:
        column, kind = self.random.choice(scope)
        known = [f"{column} IS NULL", f"{column} IS NOT NULL"]
        if is_map(kind):
            return self.random.choice(known)
        other, literal = self._of(scope, kind), self._literal(kind)
        known += [
            f"{column} = {literal}",
            f"{column} = {other}",
            both(f"{column} <=> {other}", f"{column} IS NOT DISTINCT FROM {other}"),
        ]
        if KINDS[kind].ordered:
            known += [
                f"{column} < {literal}",
                f"{column} >= {other}",
                f"{column} <> {literal}",
                f"{column} IN ({literal}, {self._literal(kind)})",
                f"{column} NOT IN ({literal}, NULL)",
                f"{column} BETWEEN {literal} AND {other}",
            ]
        if kind == "boolean":
            known += [column, f"NOT {column}"]
        if kind == "string":
            known.append(f"{column} LIKE 'a%'")
        if kind == "integer":
            known += functions.calls("boolean", lambda _: column)
        return self.random.choice(known)


def scope_of(source: Query, alias: str) -> list[tuple[str, str]]:
    return [(f"{alias}.{quoted(name)}", kind) for name, kind in source.columns.items()]


def _selected(items: Scope, names: Sequence[str]) -> str:
    return ", ".join(f"{each} AS {quoted(n)}" for n, (each, _) in zip(names, items, strict=True))


FORMS = (
    Grammar.projection,
    Grammar.valid,
    Grammar.distinct,
    Grammar.subqueries,
    Grammar.subqueries,
    Grammar.join,
    Grammar.join,
    Grammar.half_join,
    Grammar.group,
    Grammar.group,
    Grammar.group,
    Grammar.grouping_sets,
    Grammar.set_operation,
    Grammar.set_operation,
    Grammar.top,
    Grammar.some,
    Grammar.periods,
    Grammar.first_of_each,
    Grammar.window,
    Grammar.window,
    Grammar.lateral,
    Grammar.exploded,
    Grammar.shared,
)
