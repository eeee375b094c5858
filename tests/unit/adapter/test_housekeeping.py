"""What the coordinator does meanwhile: it tries again what could not begin."""

from tests.support.adapter.adapter_log import outage
from tests.support.adapter.coordination import Place
from tests.support.waiting import wait_until

from slackwater.adapter import coordinator


def test_nothing_is_tried_again_while_the_catalog_is_uncertain(env, monkeypatch):
    """A start would go by a catalog that may be another one by now."""
    monkeypatch.setattr(coordinator, "HOUSEKEEPING_INTERVAL_S", 0.01)
    place = Place(env)
    looked, tried = [], []

    def is_away():
        looked.append(True)
        raise outage()

    monkeypatch.setattr(place.coordinator.parts.implications, "retry", lambda: tried.append(True))
    monkeypatch.setattr(place.coordinator.parts.relations.catalog, "resolve", is_away)
    wait_until(lambda: len(looked) > 1)
    tried.clear()
    wait_until(lambda: len(looked) > 4)
    assert tried == []
    # It is asked again, and what waits is tried when the metastore has answered.
    monkeypatch.setattr(place.coordinator.parts.relations.catalog, "resolve", lambda: None)
    wait_until(lambda: tried)
    place.close()
