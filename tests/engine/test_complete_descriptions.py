"""What a replica is told of a dataflow is enough to plan it: no catalog is asked for a name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    MaterializedViewExport,
    ObjectToBuild,
    SourceImport,
)
from slackwater.compute.controller.encoding import decode_command, encode_command
from slackwater.compute.controller.protocol import CreateDataflow
from slackwater.compute.definitions import Definition, StoredShards, definition_of, planned
from slackwater.compute.planning import Planner
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.driver import Driver

pytestmark = pytest.mark.spark

TABLE, VIEW, KEPT = GlobalId("u7"), GlobalId("u8"), GlobalId("u9")
COLUMNS = RelationDesc.of(Gate="string", k="integer")
SHARDS = StoredShards("slackwater.Straße.levels", 1, COLUMNS.to_json(), 2)


def relation(global_id, kind, name, **more):
    named = {"id": global_id, "kind": kind, "schema_name": "Straße", "name": name}
    return {**named, "schema": json.loads(COLUMNS.to_json()), **more}


RELATIONS = (
    relation(TABLE, "table", "levels"),
    relation(
        VIEW,
        "view",
        "raised",
        properties={},
        view={
            "query": "SELECT gate, max(k) AS k FROM LEVELS GROUP BY gate",
            "catalog": "slackwater",
            "namespace": ["STRASSE"],
        },
    ),
)
"""A table and a view over it, in a schema that no catalog has."""

QUERY = "SELECT l.gate, l.k + r.k AS k FROM raised r JOIN slackwater.strasse.Levels l USING (gate)"


def sent(definition):
    """The description of a view with that definition, as it comes from the controller."""
    described = DataflowDescription(
        "slackwater.strasse.kept",
        (ObjectToBuild(KEPT, definition.text),),
        (SourceImport(TABLE, SHARDS.text),),
        sink_exports=(MaterializedViewExport(KEPT, KEPT, KEPT, SHARDS.text),),
        settings=(),
    )
    return decode_command(encode_command(CreateDataflow(described))).dataflow


def planned_by_value(declared, definition):
    described = sent(definition)
    engine = SparkBridge(Driver("here", declared.session._jvm))
    found = definition_of(described)
    return planned(described, Planner(engine).plan(described.name, found, {}))


@pytest.mark.parametrize("catalog", ["slackwater", "spark_catalog", "one that is not configured"])
def test_names_mean_what_the_value_says(declared, catalog):
    """Also those in the queries of views, and wherever the definition was made."""
    is_ours = catalog == "slackwater"
    query = QUERY if is_ours else QUERY.replace("raised", "slackwater.strasse.raised")
    namespace = ("STRASSE",) if is_ours else ("gone",)
    definition = Definition(query, catalog, namespace, relations=RELATIONS)
    flow = planned_by_value(declared, definition)
    assert flow.inputs.keys() == {TABLE}
    assert flow.plan.kept.plan.schema.names == ("gate", "k")
    assert flow.plan.program is not None
    # Whichever view stays whole, it is the same rows, and so the same version.
    whole = planned_by_value(declared, replace(definition, whole=(VIEW,))).plan.kept.plan
    assert len(whole.views) == 1
    assert whole.fingerprint == flow.plan.kept.plan.fingerprint
    with pytest.raises(SlackwaterError):
        planned_by_value(declared, replace(definition, relations=None))


def test_what_the_value_does_not_say_is_not_there(declared):
    """Not even what the catalog has."""
    declared.id_of("elsewhere", COLUMNS)
    query = "SELECT k FROM slackwater.default.elsewhere"
    definition = Definition(query, "slackwater", ("default",), relations=RELATIONS)
    with pytest.raises(SlackwaterError) as refused:
        planned_by_value(declared, definition)
    assert refused.value.condition == "TABLE_OR_VIEW_NOT_FOUND"
