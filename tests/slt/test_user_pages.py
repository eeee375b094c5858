"""The examples of the user documentation run, and answer what stands below them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.applications.fixtures import Workplace
from tests.support.applications.pages import PageRun, examples

DOCS = Path(__file__).parents[2] / "docs/user"
WITH_REQUESTS = {
    "tasks/receive_webhooks.md": "e2e/test_webhooks.py",
    "tasks/follow_a_database.md": "e2e/test_changefeeds.py",
}
"""Pages whose examples send requests, and the tests that run them."""

PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if str(path.relative_to(DOCS)) not in WITH_REQUESTS and examples(path.read_text())
]


def name(path):
    return "_".join(path.relative_to(DOCS).with_suffix("").parts)


@pytest.mark.spark
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_examples_of_a_page(path, shared_application, tmp_path, request):
    place = Workplace(shared_application, f"page_{name(path)}", tmp_path)
    page = path.read_text()
    kafka = request.getfixturevalue("kafka") if 'title="topic ' in page else None
    upstream = request.getfixturevalue("upstream") if "```pgsql" in page else None
    try:
        PageRun(place, place.schema, kafka, upstream).run(page)
    finally:
        place.sql("ROLLBACK", session=place.schema)
        shared_application.sql(f"DROP SCHEMA slackwater.{place.schema} CASCADE")
