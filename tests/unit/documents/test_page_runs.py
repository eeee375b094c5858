"""A page whose examples answer something else is found out."""

import pytest
from tests.support.applications.application import Result, SqlError
from tests.support.applications.pages import PageRun, WrongAnswer, examples, statements


class Scripted:
    """Answers each statement from a list, and keeps the statements."""

    def __init__(self, folder, *answers):
        self.folder = folder
        self.schema = "own"
        self.asked = []
        self._answers = list(answers)

    def use(self, session):
        pass

    def sql(self, text, *, session):
        self.asked.append(text)
        answer = self._answers.pop(0)
        if isinstance(answer, SqlError):
            raise answer
        columns, *rows = answer
        return Result(tuple(columns), rows, 0)


def failure(condition, sqlstate, message):
    return SqlError({"type": "X", "condition": condition, "sqlstate": sqlstate, "message": message})


def page(*pairs):
    return "\n\n".join(
        f"```sql\n{sql}\n```" + ("" if answer is None else f"\n\n```text\n{answer}\n```")
        for sql, answer in pairs
    )


def run(place, text):
    PageRun(place, "main").run(text)


def test_an_answer_that_is_as_the_page_says(tmp_path):
    place = Scripted(tmp_path, [["k", "v"], [1, None], [20, True]])
    run(place, page(("FETCH ALL c;", "k  | v\n1  | NULL\n20 | true")))


@pytest.mark.parametrize("answer", ["k\n2", "n\n1", "k\n1\n1", "k", "SLACKWATER_X (42809)"])
def test_another_answer(tmp_path, answer):
    place = Scripted(tmp_path, [["k"], [1]])
    with pytest.raises(WrongAnswer, match="line 1"):
        run(place, page(("FETCH ALL c;", answer)))


def test_a_statement_that_fails(tmp_path):
    place = Scripted(tmp_path, failure("SLACKWATER_X", "42809", "it is a view"))
    with pytest.raises(WrongAnswer, match="it is a view"):
        run(place, page(("DROP TABLE t;", None)))


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ("SLACKWATER_X (42809)", True),
        ("SLACKWATER_X (42809)\nit is\na view", True),
        ("SLACKWATER_X (42809)\nit ... view", True),
        ("SLACKWATER_X (42809)\nit is a table", False),
        ("SLACKWATER_X (42000)", False),
        ("SLACKWATER_Y (42809)", False),
    ],
)
def test_an_error(tmp_path, answer, fits):
    place = Scripted(tmp_path, failure("SLACKWATER_X", "42809", "it is a view"))
    text = page(("DROP TABLE t;", answer))
    if fits:
        run(place, text)
    else:
        with pytest.raises(WrongAnswer):
            run(place, text)


def test_a_time_is_the_same_in_the_whole_page(tmp_path):
    then, other = "1795670307197", "1795670309999"
    text = page(
        ("FETCH 1 c;", "t\n1790000000000"),
        ("FETCH 1 c AS OF 1790000000000;", "t\n1790000000000"),
    )
    place = Scripted(tmp_path, [["t"], [then]], [["t"], [then]])
    run(place, text)
    assert place.asked[1].endswith(then)
    with pytest.raises(WrongAnswer):
        run(Scripted(tmp_path, [["t"], [then]], [["t"], [other]]), text)


def test_measured_times_are_any(tmp_path):
    place = Scripted(tmp_path, [["step", "elapsed_us"], [0, 123]])
    run(place, page(("FETCH ALL c;", "step | elapsed_us\n0 | 9")))


def test_names_and_files_of_the_page(tmp_path):
    place = Scripted(tmp_path, [["path"], [f"{tmp_path}/in/x.csv"]], [["id"], [1]])
    file = '```csv title="/data/in/x.csv"\na,b\n```\n\n'
    run(place, file + page(("READ '/data/in/x.csv';", "path\n/data/in/x.csv")))
    assert (tmp_path / "in/x.csv").read_text() == "a,b\n"
    run(place, page(("FETCH slackwater.default.t, spark_catalog.default.f;", "id\n1")))
    assert place.asked[-1] == "FETCH slackwater.own.t, spark_catalog.default.f"


def test_a_text_that_is_not_directly_below_is_no_answer():
    ((_, answer),) = examples("```sql\nSELECT 1;\n```\n\nIt prints:\n\n```text\n2\n```\n")
    assert answer is None


def test_statements_end_with_lines():
    assert statements("-- why\nSELECT ';';\nSELECT 1;  -- one\n\nSELECT\n  2") == [
        "SELECT ';'",
        "SELECT 1",
        "SELECT\n  2",
    ]
