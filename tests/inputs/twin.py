"""Queries as maintained views and as what they are, while their tables double, empty and come back.

A plain session of Spark says what a query answers: over temporary views with the same rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.inputs.answers import nearly, rows_of
from tests.support.compute.declared import Declared
from tests.support.compute.incremental import Bench, is_complete
from tests.support.waiting import PATIENCE

from slackwater.compute.engine import Analysis, IndexQuery, ViewPlan
from slackwater.planner.delta.lowering import NotMaintained
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, quote_identifier

STEPS = {"created": 1, "doubled": 2, "emptied": 0, "restored": 1}
"""How often each row is there."""


AT_ONCE = 48
"""So many views are maintained together."""

_OF_ROWS_IN_THE_PLAN = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
_OF_CONSTANTS = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Of a table Spark computes nothing before it has simplified the query.
    "spark.sql.optimizer.excludedRules": _OF_ROWS_IN_THE_PLAN,
}
BY_ROW = {
    **COMPILED,
    "spark.sql.optimizer.excludedRules": f"{_OF_ROWS_IN_THE_PLAN},{_OF_CONSTANTS}",
}
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.optimizer.excludedRules": "",
}
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    **INTERPRETED,
}
"""What makes a session quicker. Where it makes an answer another, the usual one counts."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    query: str
    step: str
    text: str


@dataclass(slots=True)
class Found:
    """`labels` of queries: how the view is maintained, or the condition that refuses it."""

    labels: list[tuple[str, str]] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)

    @staticmethod
    def broken(text: str) -> Found:
        """Nothing is known, because of an error of the test itself."""
        return Found(mismatches=[Mismatch("", "", text)])

    def by(self, group: Callable[[str], str]) -> Found:
        """With labels by groups of queries."""
        return Found([(group(query), label) for query, label in self.labels], self.mismatches)

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """How often each label is there, by queries or their groups."""
        found: dict[str, Counter[str]] = {}
        for group, label in self.labels:
            found.setdefault(group, Counter())[label] += 1
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows; None: the query fails, with `failure`."""

    rows: Counter[str] | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _View:
    """`is_constant`: it reads no collection."""

    name: str
    query: str
    kind: str
    is_constant: bool


@dataclass(frozen=True, slots=True)
class _Table:
    rows: pa.Table
    schema: StructType


@dataclass(frozen=True, slots=True)
class _Indexed:
    """The indexes on a table with this shard."""

    shard: int
    queries: tuple[IndexQuery, ...]


MOST_INDEXES = 2
_UNEQUAL = re.compile(r"map<|variant|interval", re.IGNORECASE)

Order = Callable[[int, int], Sequence[int]]
"""Which rows come one after the other, of so many of which each is there so often."""


def _backwards(count: int, times: int) -> Sequence[int]:
    return [*range(count - 1, -1, -1)] * times


def _side_by_side(count: int, times: int) -> Sequence[int]:
    return [row for row in range(count) for _ in range(times)]


OTHER_ORDERS: tuple[Order, ...] = (_backwards, _side_by_side)


class Twin:
    """A session, and an environment whose collections have the rows of its tables."""

    def __init__(
        self,
        declared: Declared,
        folder: Path,
        settings: dict[str, str],
        *,
        has_indexes: bool = False,
    ) -> None:
        """`has_indexes`: views may look up in indexes of the tables by their first columns."""
        self.session: SparkSession = declared.new_session()
        self.session.sql("USE spark_catalog.default")
        for name, value in {**QUICK, **settings}.items():
            self.session.conf.set(name, value)
        self.found = Found()
        self._bench = Bench(folder, declared)
        self._tables: dict[str, _Table] = {}
        self._listed: set[str] = set()
        self._permanent: set[str] = set()
        self._own_functions: list[str] = []
        self._views = 0
        self._has_indexes = has_indexes
        self._indexes: dict[tuple[tuple[str, str], ...], dict[str, _Indexed]] = {}
        """For the settings of views, the indexes on tables that have the same."""
        self._shards: dict[str, int] = {}
        """The first shard of each table that has had indexes."""
        self._index_ids: dict[str, list[GlobalId]] = {}

    def close(self) -> None:
        self._bench.close()

    # Tables

    def read_tables(self) -> None:
        """Collections come to have the rows of all tables and views that the session has."""
        found: dict[str, _Table] = {}
        listed = _attempt(lambda: self.session.sql("SHOW TABLES").collect()) or ()
        for row in listed:
            frame = _attempt(lambda name=row.tableName: self.session.table(f"`{name}`"))
            rows = None if frame is None else _attempt(frame.toArrow)
            if rows is not None:
                found[row.tableName] = _Table(rows, frame.schema)
        named = _attempt(lambda: self.session.sql("SHOW USER FUNCTIONS").collect()) or ()
        self._own_functions = [row[0].split(".")[-1] for row in named if "." in row[0]]
        self._listed = {row.tableName for row in listed}
        temporary = {row.tableName for row in listed if row.isTemporary}
        self._permanent = self._listed - temporary
        for name in self._tables.keys() - found.keys():
            self._bench.relations.pop(name, None)
        new = {name: t for name, t in found.items() if not self._has(name, t)}
        for name, table in new.items():
            for index in self._index_ids.pop(name, ()):
                self._bench.worker.remove(index)
            self._bench.relations.pop(name, None)
            _attempt(lambda n=name, t=table: self._bench.table(n, _nullable(t.schema)))
        self._tables = found
        self._write(new, 1)

    def _has(self, name: str, table: _Table) -> bool:
        known = self._tables.get(name)
        return (
            known is not None
            and known.schema == table.schema
            and known.rows.equals(table.rows)
            and known.rows.schema == table.rows.schema
        )

    def _write(self, tables: dict[str, _Table], diff: int) -> None:
        at = self._bench.client.reads.tables_upper()
        updates = {}
        for name, table in tables.items():
            if name in self._bench.relations and table.rows.num_rows:
                rows = table.rows.cast(_nullable(table.schema).arrow_schema())
                for column, value in ((TIME_COLUMN, at), (DIFF_COLUMN, diff)):
                    values = pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows)
                    rows = rows.append_column(pa.field(column, pa.int64(), False), values)
                updates[name] = rows
        self._bench.write(at + 1, updates)

    def _show(self, times: int, order: Order | None = None) -> None:
        """The session has each row so often; one after the other where there is no `order`."""
        for name, table in self._tables.items():
            rows = table.rows
            if order is None:
                shown = [rows] * times
            else:
                # Arrow takes no rows of a column of NULLs without a type.
                shown = [rows.slice(at, 1) for at in order(rows.num_rows, times)]
            frame = self.session.createDataFrame(
                pa.concat_tables([rows.slice(0, 0), *shown]).combine_chunks(), table.schema
            )
            frame.createOrReplaceTempView(f"`{name}`")

    def _hide(self) -> None:
        """Tables come to light again; what stands for a temporary view stays, with its rows."""
        self._show(1)
        for name in self._permanent & self._tables.keys():
            self.session.catalog.dropTempView(name)

    # Views

    def examine(self, queries: Sequence[str]) -> None:
        """Adds to `found` what the queries come to."""
        for start in range(0, len(queries), AT_ONCE):
            self._examine(queries[start : start + AT_ONCE])

    def _examine(self, queries: Sequence[str]) -> None:
        made: list[_View] = []
        answers: dict[str, Answer] = {}
        for query in queries:
            answer = self._asked(query)
            if answer is None:
                self.found.labels.append((query, "refused by Spark"))
            elif (view := self._view(query)) is not None:
                made.append(view)
                answers[view.name] = answer
        at = self._bench.client.reads.tables_upper() - 1
        same = [v for v in made if self._is_same(v, "created", at, answers[v.name])]
        changing = [view for view in same if not view.is_constant]
        try:
            if changing:
                right = self._changed(changing, answers)
                same = [view for view in same if view.is_constant or view in right]
        finally:
            for view in made:
                flow = self._bench.flows.pop(view.name)
                del self._bench.relations[view.name]
                self._bench.worker.remove(flow.global_id)
        self.found.labels += [(view.query, view.kind) for view in same]

    def _changed(self, views: list[_View], created: dict[str, Answer]) -> list[_View]:
        """Those that stay the same as their queries."""
        before = 1
        try:
            for step, times in list(STEPS.items())[1:]:
                self._write(self._tables, times - before)
                before = times
                self._show(times)
                at = self._bench.client.reads.tables_upper() - 1
                views = [
                    view
                    for view in views
                    if self._is_same(
                        view, step, at, created[view.name] if times == 1 else self._again(view)
                    )
                ]
        finally:
            if before != 1:
                self._write(self._tables, 1 - before)
            self._hide()
        return views

    def _view(self, query: str) -> _View | None:
        """The view of a query that Spark accepts; None: it is refused."""
        settings = self._settings()
        try:
            engine = self._bench.engine.under(settings)
            text, functions = self._by_full_names(query), self._functions(query)
            analysis = engine.analyze(text, "slackwater", ("default",), functions)
            kind = self._unfit(analysis)
            if kind is None:
                analysis.desc.arrow_schema()
                if self._has_indexes:
                    self._index(settings)
                plan = self._bench.plan(text, settings, analysis.functions)
                return self._maintained(query, settings, plan)
        except SlackwaterError as error:
            kind = "a table of such a type" if self._is_of_refused(error) else error.condition
            if "INTERNAL" in kind:
                self._differs(query, "created", str(error))
        except FatalError as error:
            kind = "fatal"
            self._differs(query, "created", repr(error))
        self.found.labels.append((query, kind))
        return None

    def _index(self, settings: dict[str, str]) -> None:
        """Lets views look up in indexes of tables that have the same settings."""
        own = self._indexes.setdefault(tuple(sorted(settings.items())), {})
        for name in self._tables.keys() & self._bench.relations.keys():
            _, shard, desc = self._bench.relations[name]
            if name not in own:
                # A table that is filled anew has another shard, and here the id that it had: an
                # index would have what it was.
                is_first = self._shards.setdefault(name, shard) == shard
                made = tuple(self._made(name, desc, settings)) if is_first else ()
                own[name] = _Indexed(shard, made)
        self._bench.indexes[:] = [
            query
            for name, indexed in own.items()
            if name in self._bench.relations and self._bench.relations[name][1] == indexed.shard
            for query in indexed.queries
        ]

    def _made(
        self, table: str, desc: RelationDesc, settings: dict[str, str]
    ) -> Iterator[IndexQuery]:
        columns = [c.name for c in desc.columns if not _UNEQUAL.search(c.sql_type)]
        for column in columns[:MOST_INDEXES]:
            self._views += 1
            name = f"i{self._views}"
            query = f"SELECT *, ({quote_identifier(column)}) AS key0 FROM {quote_identifier(table)}"
            try:
                flow = self._bench.index(name, query, 1, settings)
            except (NotMaintained, SlackwaterError):
                continue
            self._bench.worker.add(flow)
            self._index_ids.setdefault(table, []).append(flow.global_id)
            yield IndexQuery(query, ("default",), 1, name)

    def _is_of_refused(self, error: SlackwaterError) -> bool:
        """Whether it misses a table that is no collection, because one of its types is refused."""
        name = error.parameters.get("relationName", "").strip("`")
        return name in self._listed and name not in self._bench.relations

    def _by_full_names(self, query: str) -> str:
        """The query where another schema is the current one: with whole names of functions."""
        for name in self._own_functions:
            call = re.compile(rf"(?<![.\w`]){re.escape(name)}(?=\s*\()", re.IGNORECASE)
            query = call.sub(f"spark_catalog.default.{name}", query)
        return query

    def _functions(self, query: str) -> list[dict[str, Any]]:
        """Temporary functions that the query may call, as a coordinator would be told of them."""
        jvm: Any = self.session._jvm
        scala = jvm.org.apache.spark.sql.slackwater.process.SessionFunctions
        described = scala.namedIn(self.session._jsparkSession, query)
        return list(json.loads(described.toString()))

    def _maintained(self, query: str, settings: dict[str, str], plan: ViewPlan) -> _View:
        output = _numbered(plan.kept.plan.schema)
        kind = "program" if plan.program else f"recomputed: {plan.reason}"
        self._views += 1
        view = _View(f"q{self._views}", query, kind, not plan.kept.plan.collections)
        at = self._bench.client.reads.tables_upper() - 1
        self._bench.view(view.name, query, at, settings, output, is_read=False, plan=plan)
        return view

    def _unfit(self, analysis: Analysis) -> str | None:
        known = {str(global_id) for global_id, _, _ in self._bench.relations.values()}
        if not known.issuperset(analysis.relations):
            return "TABLE_OR_VIEW_NOT_FOUND"
        if analysis.foreign:
            return "SLACKWATER_FOREIGN_RELATION"
        if analysis.nondeterministic:
            return "SLACKWATER_UNMATERIALIZABLE_FUNCTION"
        return None

    def _settings(self) -> dict[str, str]:
        """As a coordinator would be told of them with the view's definition."""
        jvm: Any = self.session._jvm
        kept = jvm.org.apache.spark.sql.slackwater.process.ResultSettings.of(
            self.session._jsparkSession
        )
        return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(kept))

    # Answers

    def _is_same(self, view: _View, step: str, at: int, wanted: Answer) -> bool:
        try:
            self._wait(view.name, at)
            refusal = self._bench.refusal(view.name, at)
            rows = None if refusal else rows_of(self._bench.snapshot(view.name, at))
        except (SlackwaterError, FatalError, AssertionError) as error:
            if wanted.rows is None and _is_of_the_query(error):
                return True
            return self._differs(view.query, step, repr(error))
        if rows == wanted.rows and not (refusal and "INTERNAL" in str(refusal)):
            return True
        wanted = self._asked_as_usual(view.query, STEPS[step])
        if rows == wanted.rows and not refusal:
            return True
        if (
            view.is_constant
            and wanted.rows is None
            and self._asked_by_row(view.query) == Answer(rows)
        ):
            self.found.labels.append((view.query, f"not before there is a row, {view.kind}"))
            return False
        if rows is None or wanted.rows is None:
            return self._differs(
                view.query, step, f"{view.kind}: {refusal or 'it answers'}, {wanted.failure!r}"
            )
        if nearly(rows) == nearly(wanted.rows):
            self.found.labels.append((view.query, f"the same to eight digits, {view.kind}"))
            return False
        if view.is_constant and _without_case(rows) == _without_case(wanted.rows):
            self.found.labels.append((view.query, f"which of equal texts, {view.kind}"))
            return False
        settled = _settled(view.query)
        if settled != view.query and self._asked(settled) == Answer(rows):
            self.found.labels.append((view.query, f"ties are settled, {view.kind}"))
            return False
        if self._goes_by_order(view, STEPS[step], rows, wanted):
            self.found.labels.append((view.query, f"as rows come, {view.kind}"))
            return False
        text = f"{view.kind}: too many {dict(rows - wanted.rows)}"
        return self._differs(view.query, step, f"{text}, missing {dict(wanted.rows - rows)}")

    def _wait(self, name: str, at: int) -> None:
        bench, flow = self._bench, self._bench.flows[name]
        for _ in range(int(PATIENCE)):
            if is_complete(bench.worker, flow, at, 1):
                return
            if (failure := bench.failure(flow)) is not None:
                raise failure
        raise AssertionError(f"{name} is not complete at {at} after {PATIENCE:g} s")

    def _goes_by_order(self, view: _View, times: int, rows: Counter[str], answer: Answer) -> bool:
        """Whether Spark answers otherwise when it reads the same rows in another order."""
        if view.is_constant and "histogram_numeric" in view.query.lower():
            return True  # the rows of a constant have one order
        if self._takes_as_many(view.query, rows, answer):
            return True
        others = (self._asked_as_usual(view.query, times, order) for order in OTHER_ORDERS)
        return any(other.rows != answer.rows for other in others)

    def _takes_as_many(self, query: str, rows: Counter[str], answer: Answer) -> bool:
        """Whether these are as many of the rows that LIMIT takes some of as Spark answers."""
        whole = re.sub(r"\bLIMIT\s+\d+(\s+OFFSET\s+\d+)?\s*$", "", query, flags=re.IGNORECASE)
        every = None if whole == query else self._asked(whole)
        if every is None or every.rows is None or answer.rows is None:
            return False
        return rows <= every.rows and rows.total() == answer.rows.total()

    def _asked_as_usual(self, query: str, times: int, order: Order | None = None) -> Answer:
        """What Spark answers with code that it compiles."""
        try:
            self._show(times, order)
            return self._asked_with(COMPILED, query)
        finally:
            self._show(times)

    def _asked_by_row(self, query: str) -> Answer:
        """What Spark answers when it computes constants no sooner than there is a row."""
        return self._asked_with(BY_ROW, query)

    def _asked_with(self, settings: Mapping[str, str], query: str) -> Answer:
        conf = self.session.conf
        for name, value in settings.items():
            conf.set(name, value)
        try:
            return self._asked(query) or Answer(None, "refused")
        finally:
            for name, value in INTERPRETED.items():
                conf.set(name, value)

    def _differs(self, query: str, step: str, text: str) -> bool:
        self.found.mismatches.append(Mismatch(query, step, text))
        return False

    def _again(self, view: _View) -> Answer:
        return self._asked(view.query) or Answer(None, "refused")

    def _asked(self, query: str) -> Answer | None:
        """What Spark answers; None: it does not accept the query."""
        frame = _attempt(lambda: self.session.sql(query))
        if frame is None:
            return None
        try:
            return Answer(rows_of(frame.toArrow()))
        except Exception as error:
            return None if _is_refused(error) else Answer(None, _failure(error))


def _attempt(action: Any) -> Any:
    """What Spark answers; None: an error, which many statements of the files are about."""
    try:
        return action()
    except Exception:
        return None


def _is_refused(error: Exception) -> bool:
    """Whether it is one of those that say nothing about rows."""
    if isinstance(error, Py4JJavaError):
        return bool(error.java_exception.getClass().getSimpleName() == "AnalysisException")
    return isinstance(error, AnalysisException)


def _is_of_the_query(error: BaseException) -> bool:
    return isinstance(error, SlackwaterError) and "INTERNAL" not in error.condition


def _settled(query: str) -> str:
    """Of the values that are there most often Spark takes any; views take the least."""
    return re.sub(r"\bmode\((\w+)(, false)?\)", r"mode(\1, true)", query, flags=re.IGNORECASE)


def _without_case(rows: Counter[str]) -> Counter[str]:
    """Nobody can say in which order Spark has the rows of a constant, of whose equal texts it shows
    the first."""
    found: Counter[str] = Counter()
    for row, times in rows.items():
        found[row.lower()] += times
    return found


def _failure(error: Exception) -> str:
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else repr(error)
    return text[:500]


def _nullable(schema: StructType) -> RelationDesc:
    desc = RelationDesc.from_json(schema.json())
    return RelationDesc(tuple(replace(column, nullable=True) for column in desc.columns))


def _numbered(desc: RelationDesc) -> RelationDesc:
    """Names of columns that differ: a view needs them."""
    return RelationDesc(tuple(c.renamed(f"c{i}") for i, c in enumerate(desc.columns)))
