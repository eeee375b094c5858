"""The schema's history: what it leads to, who upgrades, and what a failure leaves."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.support.persist.persistence import acquired, contents, own_shard, updates

import slackwater
from slackwater.persist.blobs import inline_part
from slackwater.persist.client import Append
from slackwater.persist.leadership import Fenced, current_leader
from slackwater.persist.metastore import connect, create_all
from slackwater.persist.migrations import HISTORY, History, revision
from slackwater.persist.tables import environment, metadata
from slackwater.repr.errors import SlackwaterError

PACKAGE = Path(slackwater.__file__).parent

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = {revision!r}
down_revision = {down!r}


def upgrade():
    op.create_table("tides", sa.Column("id", sa.BigInteger(), primary_key=True))
    with op.batch_alter_table("shards") as shards:
        shards.add_column(sa.Column("moon_phase", sa.Text(), nullable=False, server_default="new"))
        shards.alter_column("schema_json", new_column_name="schema_text")
    {end}
"""


@pytest.fixture
def later(tmp_path):
    """The history of a program that is one version newer."""

    def history(end="pass"):
        folder = tmp_path / "later"
        shutil.copytree(HISTORY.folder, folder, dirs_exist_ok=True)
        number = HISTORY.head + 1
        text = NEXT.format(revision=revision(number), down=revision(HISTORY.head), end=end)
        (folder / "versions" / f"v{revision(number)}_later.py").write_text(text)
        return History(folder)

    return history


def columns(engine, table):
    return {column["name"] for column in sa.inspect(engine).get_columns(table)}


def lead(engine, epoch, **options):
    return acquired(engine, epoch, **options)


def differences(engine):
    """What is not as it is declared."""
    with engine.connect() as conn:
        context = MigrationContext.configure(
            conn, opts={"compare_type": True, "compare_server_default": True}
        )
        return compare_metadata(context, metadata)


def index(described):
    options = {name: str(value) for name, value in described["dialect_options"].items()}
    return repr({**described, "dialect_options": options})


def shape(engine):
    """All tables as the database describes them, without what Alembic keeps of itself."""
    found = sa.inspect(engine)
    return {
        table: (
            {column["name"]: {**column, "type": repr(column["type"])} for column in columns},
            found.get_pk_constraint(table)["constrained_columns"],
            sorted(map(index, found.get_indexes(table))),
            found.get_unique_constraints(table),
        )
        for (_, table), columns in found.get_multi_columns().items()
        if table != "alembic_version"
    }


def test_the_history_leads_to_the_tables_of_a_new_metastore(new_database):
    made, led = connect(new_database()), connect(new_database())
    create_all(made)
    with led.begin() as conn:
        HISTORY.upgrade(conn, None)
    assert differences(led) == [], "run: make revision MESSAGE='what has changed'"
    assert shape(led) == shape(made)
    for engine in (made, led):
        engine.dispose()


DECLARED = """
from slackwater.persist.tables import metadata
print(*sorted(metadata.tables))
"""


def test_one_module_declares_all_tables(tmp_path):
    """`make revision` compares with what it declares: a missing table would be dropped."""
    engine = connect(f"sqlite:///{tmp_path}/metastore.db")
    create_all(engine)
    made = set(sa.inspect(engine).get_table_names())
    engine.dispose()
    alone = subprocess.run(
        [sys.executable, "-c", DECLARED], capture_output=True, text=True, check=True
    )
    assert set(alone.stdout.split()) == made


def test_no_other_module_declares_a_table():
    declaring = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "versions" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("Table", "sa.Table", "sqlalchemy.Table")
        and any(ast.unparse(each) == "metadata" for each in node.args)
    }
    assert declaring == {"persist/tables.py"}


def test_the_history_is_one_line():
    config = Config()
    config.set_main_option("script_location", str(HISTORY.folder))
    found = list(ScriptDirectory.from_config(config).walk_revisions())
    assert [script.revision for script in found] == [
        revision(number) for number in range(HISTORY.head, 0, -1)
    ]


ENVIRONMENT = """INSERT INTO environment
(id, version, epoch, commit_token, tables_upper, next_shard_id, next_part_id)
VALUES (1, 1, 0, '', 0, 1, 1)"""
SHARD = """INSERT INTO shards (shard_id, schema_json, since, upper, dropped)
VALUES (7, '{}', 3, 5, false)"""


def test_a_metastore_of_before_the_history_comes_to_the_declared_tables(new_database, tmp_path):
    shutil.copytree(HISTORY.folder, tmp_path / "first")
    for script in (tmp_path / "first" / "versions").glob("v*.py"):
        if not script.name.startswith("v0001"):
            script.unlink()
    engine = connect(new_database())
    with engine.begin() as conn:
        History(tmp_path / "first").upgrade(conn, None)
        conn.execute(sa.text(ENVIRONMENT))
        conn.execute(sa.text("DROP TABLE alembic_version"))
        conn.execute(sa.text(SHARD))
    create_all(engine)
    lead(engine, None)
    assert differences(engine) == []
    with engine.begin() as conn:
        assert conn.execute(sa.text("SELECT shard_id, since, upper FROM shards")).all() == [
            (7, 3, 5)
        ]
    engine.dispose()


def test_an_older_metastore_is_upgraded_by_who_leads(env, later):
    client = env.lead()
    shard = own_shard(client)
    client.commits.commit([Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))])
    history = later()
    create_all(env.engine, history=history)
    assert current_leader(env.engine).epoch == 1
    assert not sa.inspect(env.engine).has_table("tides")
    lead(env.engine, 1, history=history)
    assert sa.inspect(env.engine).has_table("tides")
    assert columns(env.engine, "shards") >= {"moon_phase", "schema_text"}
    with env.engine.begin() as conn:
        assert conn.scalar(sa.select(environment.c.version)) == history.head
        assert conn.execute(sa.text("SELECT shard_id, moon_phase FROM shards")).all() == [
            (shard, "new")
        ]
        conn.execute(sa.text("ALTER TABLE shards RENAME COLUMN schema_text TO schema_json"))
        conn.execute(sa.update(environment).values(version=HISTORY.head))
    assert contents(env.lead(expected_epoch=2), shard, 0) == [(1, "a")]


def test_i19_a_leader_is_fenced_by_the_upgrade(env, later):
    client = env.lead()
    shard = own_shard(client)
    lead(env.engine, 1, history=later())
    part = inline_part(updates((1, "a", 0, 1)))
    for write in (
        lambda: client.commits.commit([Append(shard, 0, 1, (part,))]),
        lambda: client.maintenance.set_since({shard: 1}),
    ):
        with pytest.raises(Fenced):
            write()
    with env.engine.begin() as conn:
        assert conn.execute(sa.text("SELECT since, upper FROM shards")).all() == [(0, 0)]
        assert conn.scalar(sa.text("SELECT count(*) FROM parts")) == 0


def test_an_upgrade_that_fails_changes_nothing(env, later):
    lead(env.engine, None)
    with pytest.raises(ZeroDivisionError):
        lead(env.engine, 1, history=later(end="1 / 0"))
    assert current_leader(env.engine).epoch == 1
    assert not sa.inspect(env.engine).has_table("tides")
    assert "moon_phase" not in columns(env.engine, "shards")
    lead(env.engine, 1, history=later())
    assert "moon_phase" in columns(env.engine, "shards")


def test_an_older_program_is_refused(env, later):
    lead(env.engine, None)
    lead(env.engine, 1, history=later())
    for attempt in (lambda: create_all(env.engine), lambda: lead(env.engine, 2)):
        with pytest.raises(SlackwaterError) as caught:
            attempt()
        assert caught.value.condition == "SLACKWATER_ENVIRONMENT_VERSION"
        assert caught.value.parameters["found"] == str(HISTORY.head + 1)
    assert current_leader(env.engine).epoch == 2


_OPENING = """
import sys
from slackwater.persist.leadership import Candidate, acquire
from slackwater.persist.metastore import connect, create_all
for url in sys.argv[1:]:
    engine = connect(url)
    create_all(engine)
    acquire(engine, Candidate("http://a", "/t", "app", "/l"), None)
print([name for name in sys.modules if name.startswith("alembic")])
"""


def test_to_make_one_or_open_what_is_up_to_date_needs_no_alembic(env, new_database):
    done = subprocess.run(
        [sys.executable, "-c", _OPENING, env.url, new_database()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout.strip() == "[]"
