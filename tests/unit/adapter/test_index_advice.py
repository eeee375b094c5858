"""The notice that an index would spare a scan: for what can have one, and once."""

import pytest

from slackwater.adapter.catalog.details import IndexDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.protocol import Scan
from slackwater.adapter.reading.advice import tell_of_index
from slackwater.adapter.sessions.sessions import Session
from slackwater.repr.ids import user_id
from slackwater.repr.relation import RelationDesc

ORDERS = user_id(1)
DESC = RelationDesc.of(id="long", Customer="string", **{"odd `name": "string", "Ünder": "long"})


def item(kind=ItemKind.TABLE, **rest):
    made = {"name": "orders", "desc": DESC, **rest}
    return CatalogItem(ORDERS, kind, "default", create_sql="", **made)


def index(*keys, number=2):
    return CatalogItem(
        user_id(number),
        ItemKind.INDEX,
        "default",
        f"i{number}",
        "",
        depends_on=(ORDERS,),
        details=IndexDetails(keys),
    )


def told(*items, columns=("customer",), session=None, relation=ORDERS):
    """What the session is told of a scan: the messages, hints and actions."""
    session = session or Session("app/1", 0, lambda: 0)
    tell_of_index(session, CatalogState.of((), items), Scan(relation, columns, 6_000_000, 12))
    return [(n.message, n.advice.hint, n.advice.action, n.advice.about) for n in session.pending]


def test_the_notice_has_the_statement_that_makes_the_index():
    ((message, hint, action, about),) = told(item())
    assert "6,000,000" in message
    assert "12" in message
    assert action == "CREATE INDEX ON `default`.`orders` (`Customer`)", "as the column was defined"
    assert action in hint
    assert about == ORDERS


def test_names_are_quoted():
    ((*_, action, _),) = told(item(name="a.b`c"), columns=("odd `name", "ÜNDER"))
    assert action == "CREATE INDEX ON `default`.`a.b``c` (`odd ``name`, `Ünder`)"


@pytest.mark.parametrize("kind", [ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW])
def test_what_has_contents_can_have_one(kind):
    assert told(item(kind))


@pytest.mark.parametrize("kind", [ItemKind.SYSTEM_TABLE, ItemKind.VIEW, ItemKind.SINK])
def test_nothing_else_can(kind):
    assert told(item(kind)) == []


def test_of_what_is_unknown_nothing_is_said():
    assert told() == [], "it was dropped meanwhile"
    assert told(item(), columns=("customer", "gone")) == []


def test_an_index_that_the_query_did_not_take_is_not_advised_again():
    assert told(item(), index("customer")) == []
    assert told(item(), index("`CUSTOMER`"), columns=("Customer", "id")) == [], "less is enough"
    assert told(item(), index("customer", "id")), "the query has no value for one of its keys"
    assert told(item(), index("upper(customer)")), "an expression is no column"


def test_a_session_is_told_once_for_the_same_columns():
    session = Session("app/1", 0, lambda: 0)
    assert len(told(item(), session=session)) == 1
    assert len(told(item(), session=session)) == 1
    assert len(told(item(), session=session, columns=("id",))) == 2
