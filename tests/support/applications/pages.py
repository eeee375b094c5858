"""Runs the examples of a page of the documentation, and compares what they answer.

Blocks of a page that are fenced by ``` and their language:

* ``sql``: statements, each of which ends with ``;`` at the end of a line. All of them run.
* ``python``: code that runs where ``spark`` is the session.
* ``text``, directly below one of these: the answer to its last statement, or what the code prints.
* ``csv``, ``json`` with ``title="/data/..."``: a file of that name, which appears as a whole.
* ``tsv`` with ``title="topic ..."``: messages for a topic, a key and a value a line; without a tab
  there is no value. The topic is the page's own, and ``localhost:9092`` the broker of the tests.

* ``pgsql``: statements that the server of PostgreSQL runs, in one transaction. The database is the
  page's own; a connection leads there by ``HOST 'localhost', DATABASE 'shop', USER 'reader'``.

All other languages (``syntax``, ``sh``, ``ini`` ..) are for the reader alone.

An answer is a line with the names of the columns, separated by ``|``, and a line for each row; or
the condition and the SQLSTATE of an error, ``SLACKWATER_X (42809)``, and below it a part of its
message. ``...`` stands for any text. A number of 13 digits is a time: where an answer first has
it, it stands for the time that is there, and from then on for the same time. Numbers below a name
that ends in ``_us`` are measured, so any others are as good. ``/data/`` is a folder of the page's
own, and ``slackwater.default`` a schema of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

RUN = frozenset({"sql", "python", "pgsql"})
FILES = frozenset({"csv", "json", "tsv"})
TOPIC = "topic "
SHOP = "HOST 'localhost', DATABASE 'shop', USER 'reader'"
_FENCE = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_ERROR = re.compile(r"([A-Z][A-Z_.]+) \((\w{5})\)")
_TIME = re.compile(r"(?<!\d)\d{13}(?!\d)")
_HOLE = re.compile(r"\.\.\.|(?<!\d)\d{13}(?!\d)")
_SCHEMA = re.compile(
    r"((?<![./\w])slackwater[.]|/slackwater/)default(?=[./])|(`slackwater`[.]`)default(?=`)"
)
_ASKS = ("SELECT", "WITH", "SHOW", "EXPLAIN", "DESCRIBE")
"""The statements that can be repeated until their answer is there."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its first line's number, its language, the file that it shows, its text."""

    line: int
    language: str
    title: str | None
    text: str


class WrongAnswer(Exception):
    """An example does not answer what the page says."""


def blocks(page):
    """The fenced blocks of a page, in order."""
    return [
        Block(
            page.count("\n", 0, found.start()) + 1,
            found["language"],
            found["title"],
            found["text"],
        )
        for found in _FENCE.finditer(page)
    ]


def examples(page):
    """Pairs of a block that runs, or shows a file, and the answer below it, or None."""
    found = []
    for match in _FENCE.finditer(page):
        if match["language"] not in RUN | FILES:
            continue
        line = page.count("\n", 0, match.start()) + 1
        block = Block(line, match["language"], match["title"], match["text"])
        below = _FENCE.match(page[match.end() :].lstrip("\n"))
        answer = below["text"] if below is not None and below["language"] == "text" else None
        found.append((block, answer))
    return found


def statements(text):
    """The statements of a block, without their semicolons and lines of comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    parts = re.split(r";[ \t]*(?:--[^\n]*)?(?:\n|$)", lines)
    return [part.strip() for part in parts if part.strip()]


class PageRun:
    """Runs the examples of one page in a session and a schema of its own."""

    def __init__(self, place, session, kafka=None, upstream=None):
        self._place = place
        self._session = session
        self._kafka = kafka
        self._upstream = upstream
        self._topics = {}
        self._times = {}
        place.use(session)

    def run(self, page):
        """Runs all of them. Raises WrongAnswer with the line of the page."""
        for block, answer in examples(page):
            try:
                self.one(block, answer)
            except (WrongAnswer, SqlError) as error:
                raise WrongAnswer(f"line {block.line}:\n{block.text}\n{error}") from None

    def one(self, block, answer):
        if block.language in FILES:
            if block.language == "tsv":
                self._send(block)
            elif block.title is not None:
                self._file(block)
            return
        if block.language == "pgsql":
            self._upstream.run(*statements(block.text))
            return
        if block.language == "python":
            self._compare(self.printed(block.text), answer)
            return
        found = statements(block.text)
        if not found:
            return  # The site shows a file of sql/ in its place, which has a test of its own.
        *first, last = found
        for statement in first:
            self.sql(statement)
        if answer is None:
            self.sql(last)
            return
        condition = _ERROR.match(answer)
        if condition is not None:
            self._fails(last, condition[1], condition[2], answer[condition.end() :])
        elif last.upper().startswith(_ASKS):
            self._comes(last, answer)
        else:
            self._compare(shown(self.sql(last), _is_ordered(last)), answer)

    def sql(self, statement):
        return self._place.sql(self._filled(statement), session=self._session)

    def printed(self, code):
        """What Python code prints in the driver."""
        wrapped = (
            "import contextlib, io\nprinted = io.StringIO()\n"
            f"with contextlib.redirect_stdout(printed):\n    exec({self._filled(code)!r}, "
            "{'spark': spark})\nresult = printed.getvalue()"
        )
        return self._place.application.python(wrapped, session=self._session)

    def _comes(self, statement, answer):
        seen = None

        def fits():
            nonlocal seen
            seen = shown(self.sql(statement), _is_ordered(statement))
            return self._fits(seen, answer)

        try:
            wait_until(fits)
        except AssertionError:
            raise WrongAnswer(f"answers\n{seen}") from None

    def _fails(self, statement, condition, sqlstate, message):
        try:
            self.sql(statement)
        except SqlError as error:
            text = " ".join(message.split())
            found = " ".join(error.message.split())
            if (error.condition, error.sqlstate) == (condition, sqlstate) and re.search(
                self._pattern(text), found
            ):
                return
            raise WrongAnswer(f"fails with {error.condition} {error.sqlstate}: {found}") from None
        raise WrongAnswer("does not fail")

    def _compare(self, seen, answer):
        if answer is not None and not self._fits(seen, answer):
            raise WrongAnswer(f"answers\n{seen}")

    def _fits(self, seen, answer):
        """Whether they are the same; if so, the times that the answer names are known."""
        wanted = tidy(answer)
        found = re.fullmatch(self._pattern(wanted), tidy(seen), re.DOTALL)
        if found is None:
            return False
        self._times.update({name.removeprefix("t"): t for name, t in found.groupdict().items()})
        return True

    def _pattern(self, wanted):
        """A regular expression for an answer; a time that is not known yet is a group of it."""
        wanted = self._filled(wanted)
        known = set(self._times.values())
        pattern, end, named = "", 0, set()
        for hole in _HOLE.finditer(wanted):
            pattern += re.escape(wanted[end : hole.start()])
            end = hole.end()
            if hole[0] == "...":
                pattern += r".*?"
            elif hole[0] in known:
                pattern += hole[0]
            elif hole[0] in named:
                pattern += f"(?P=t{hole[0]})"
            else:
                named.add(hole[0])
                pattern += rf"(?P<t{hole[0]}>\d{{13}})"
        return pattern + re.escape(wanted[end:])

    def _filled(self, text):
        text = _TIME.sub(lambda found: self._times.get(found[0], found[0]), text)
        schema = self._place.schema
        text = _SCHEMA.sub(lambda found: f"{found[1] or found[2]}{schema}", text)
        if self._upstream is not None:
            text = text.replace(SHOP, self._upstream.options)
        for topic, own in self._topics.items():
            text = text.replace(f"TOPIC '{topic}'", f"TOPIC '{own}'")
        if self._kafka is not None:
            text = text.replace("localhost:9092", self._kafka.address)
        return text.replace("/data/", f"{self._place.folder}/")

    def _send(self, block):
        """Sends the messages of a block; the first for a topic makes it."""
        topic = block.title.removeprefix(TOPIC)
        if topic not in self._topics:
            self._topics[topic] = self._kafka.new_topic()
        producer = self._kafka.producer()
        for line in block.text.splitlines():
            key, tab, value = line.partition("\t")
            producer.produce(self._topics[topic], key=key, value=value if tab else None)
        producer.flush()

    def _file(self, block):
        path = self._place.folder / block.title.removeprefix("/data/")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}")
        written.write_text(block.text)
        written.rename(path)


def shown(result, in_order=True):
    """A result as an answer of a page: columns, then rows, sorted unless their order counts."""
    rows = [" | ".join(_cell(value) for value in row) for row in result.rows]
    return "\n".join([" | ".join(result.columns), *(rows if in_order else sorted(rows))])


def _is_ordered(statement):
    """Whether the order of the rows means something: queries leave it open."""
    return "ORDER BY" in statement or not statement.startswith(("SELECT", "WITH", "SUBSCRIBE"))


def tidy(answer):
    """An answer without the blanks that align its columns, and without microseconds."""
    lines = [re.sub(r" *\| *", " | ", line).strip() for line in answer.strip().splitlines()]
    return "\n".join(_without_measures([re.sub(r" +", " ", line) for line in lines]))


def _without_measures(lines):
    """Lines in which the numbers of columns such as ``elapsed_us`` are all alike."""
    header = lines[0].split(" | ") if lines else []
    measured = {i for i, name in enumerate(header) if name.endswith("_us")}
    if not measured:
        return lines
    rows = [line.split(" | ") for line in lines[1:]]
    return [
        lines[0],
        *(
            " | ".join(
                "0" if i in measured and cell.isdecimal() else cell for i, cell in enumerate(row)
            )
            for row in rows
        ),
    ]


def _cell(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip() or "(empty)"
    return str(value)
