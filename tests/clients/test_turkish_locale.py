"""An application in a Turkish locale, where the capital of `i` is not `I`."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, SqlError

pytestmark = pytest.mark.spark

TURKISH = {"spark.driver.extraJavaOptions": "-Duser.language=tr -Duser.country=TR"}

STATEMENTS = (
    "create schema if not exists diyar",
    "use slackwater.diyar",
    "create table if not exists i (id int not null, ilk string) with (retain history for '1 hour')",
    "insert into i values (1, 'bir'), (2, 'iki')",
    "begin isolation level serializable",
    "insert into i values (3, 'in a block')",
    "commit",
    "begin",
    "rollback",
    "create materialized view if not exists mi as select id, count(*) as n from i group by id",
    "create or replace view vi as select id from mi",
    "create index if not exists ii in cluster quickstart on mi (id)",
    "create default index on i",
    "alter index ii set (retain history for '1 hour')",
    "drop index if exists ii",
    "create source si from load generator counter (tick interval '1s')",
    "comment on materialized view mi is 'bir'",
    "comment on column i.id is 'the id'",
    "alter table i set (retain history for '2 hours')",
    "show sinks",
    "show sources",
    "show indexes",
    "show clusters",
    "show notices",
    "show materialized views",
    "show create materialized view mi",
    "show create table i",
    "show create view vi",
    "show transaction isolation level",
    "set transaction_isolation = 'serializable'",
    "show transaction_isolation",
    "reset transaction_isolation",
    "set slackwater.max_query_result_size = '1GB'",
    "explain timestamp as json for select id from i",
    "explain timestamp for select id from i",
    "explain incremental for materialized view mi",
    "explain analyze materialized view mi",
    "declare imlec cursor for subscribe mi",
    "fetch 1 imlec with (timeout = '5s')",
    "close imlec",
    "select id from i as of at least 0",
    "drop view if exists vi restrict",
    "alter materialized view mi rename to mii",
    "drop materialized view if exists mii",
    "drop source if exists si cascade",
    "drop table if exists i, j",
)

REFUSED = {
    "explain filter pushdown for materialized view mi": "SLACKWATER_UNSUPPORTED",
    "set client_min_messages = 'notice'": "SLACKWATER_UNSUPPORTED",
    "subscribe to (select id from i) with (snapshot) up to 1": "SLACKWATER_SUBSCRIBE_BOUNDS",
}
"""What no locale makes possible; the refusal shows that the words were understood."""


@pytest.fixture(scope="module")
def turkish(tmp_path_factory):
    place = tmp_path_factory.mktemp("turkish") / "environment"
    with Application(place, master="local[2]", conf=TURKISH) as application:
        yield application


@pytest.mark.nightly
def test_statements_in_lower_case_are_recognised(turkish):
    locale = "spark._jvm.java.util.Locale.getDefault().toString()"
    assert turkish.python(f"result = {locale}") == "tr_TR"
    turkish.sql("use slackwater")
    answers = {text: answer(turkish, text) for text in STATEMENTS}
    assert answers == dict.fromkeys(STATEMENTS)
    turkish.sql("create table i (id int)")
    assert {text: answer(turkish, text) for text in REFUSED} == REFUSED


def answer(application, text):
    """The condition with which a statement fails; None when it does not."""
    try:
        application.sql(text)
    except SqlError as error:
        return error.condition
    return None
