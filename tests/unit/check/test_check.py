from __future__ import annotations
import json
import pytest
from tests.support.adapter.coordination import Place
from slackwater.check.run import CheckOptions, examine

def test_a(env, capsys):
    place = Place(env)
    place.env.persist.files.inline_bytes = 0
    place.table("t", k="long", v="string")
    place.write("t", *[{"k": i, "v": f"x{i}"} for i in range(100)])
    place.write("t", {"k": 1, "v": "x1"}, diff=-1)
    place.env.persist.files.inline_bytes = 1000000
    place.write("t", *[{"k": i, "v": f"x{i}"} for i in range(100)])
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    print(examine(env.location, env.url, CheckOptions(True)))
    place.drop("t")
    print(examine(env.location, env.url, CheckOptions(True)))
    place.close()
    print(examine(env.location, env.url, CheckOptions(True, True)))
    raise
