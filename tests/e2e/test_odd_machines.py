"""The product where paths, working folder and variables are unlike those that its makers have."""

from __future__ import annotations

import shutil

import pytest
from tests.support.applications.application import ROOT, Application, kill, only_coordinator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

PACKAGE = "the package%20of +#&'ü"
"""Spark itself takes brackets in the path of a jar for a pattern."""

FOLDER = "a b%20c+d#e?f&g'\"[x]{y,z}*ü-e\u0301"

AROUND = {
    "LC_ALL": "",
    "LANG": "C",
    "TZ": "Australia/Lord_Howe",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "all_proxy": "http://127.0.0.1:9",
    "no_proxy": "",
    "JAVA_TOOL_OPTIONS": "-Djava.net.preferIPv6Addresses=true",
    "SPARK_PREFER_IPV6": "true",
}
"""The zone's summer time is half an hour; nobody listens at the port."""

SHADOWS = ("json", "types", "slackwater")
"""Modules of a user, in the folder in which he works."""

ROWS = 12_000
"""So many, of 256 characters, are more than the metastore keeps."""

SHOWN = [["\u00fc", 1], ["b", 2]]


@pytest.mark.nightly
def test_an_application_with_all_oddities_at_once(tmp_path):
    installed = tmp_path / PACKAGE
    shutil.copytree(ROOT / "python" / "slackwater", installed / "slackwater")
    folder = tmp_path / FOLDER
    feed, fed = folder / "feed [1]", folder / "fed {a,b}"
    feed.mkdir(parents=True)
    (feed / "%41 [2]#{3,4}.csv").write_text("id,s\n1,\u00fc\n2,b\n", encoding="utf-8")
    variables = {**AROUND, "PYTHONPATH": f"{installed}:{ROOT}"}
    place = folder / "environment"
    with Application(place, folder=folder, variables=variables) as application:
        # Its own Python has begun; the coordinator's has not.
        for name in SHADOWS:
            (folder / f"{name}.py").write_text("raise SystemExit('the module of a user')")
        assert application.python("import slackwater; result = slackwater.__file__") == str(
            installed / "slackwater" / "__init__.py"
        )
        application.sql("USE slackwater")
        application.sql(
            f"CREATE SOURCE feed FROM FILES (PATH {quoted(feed)}, FORMAT CSV, HEADER true)"
            " WITH (TIMESTAMP INTERVAL '100ms')"
        )
        application.sql(
            "CREATE TABLE t AS SELECT id, sha2(string(id), 512) || sha2(string(-id), 512) AS s"
            f" FROM range({ROWS})"
        )
        application.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT f.s, t.id FROM t JOIN feed AS f ON t.id = f.id"
        )
        wait_until(
            lambda: (
                application.rows("SELECT s, id FROM v ORDER BY id") == [["\u00fc", 1], ["b", 2]]
            ),
            what="the view has the rows of the file",
        )
        application.sql(f"CREATE SINK fed FROM v INTO FILES (PATH {quoted(fed)}, FORMAT JSON)")
        kill(only_coordinator(place))
        application.sql("INSERT INTO t VALUES (2, 'again')")
        assert application.value("SELECT count(*) FROM v") == 3
        assert application.value("SELECT count(*) FROM t") == ROWS + 1
        wait_until(lambda: len(lines(fed)) == 3, what="the sink has written all")
        assert (place / "metastore.sqlite").exists()
        assert list(place.glob("shards/**/*.parquet"))
    assert {path.name for path in tmp_path.iterdir()} == {PACKAGE, FOLDER}


def quoted(path):
    """The path as a text of SQL."""
    return "'" + str(path).replace("'", "\\'").replace('"', '\\"') + "'"


def lines(folder):
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.jsonl")]
    return [line for text in texts for line in text.splitlines()]
