"""Files of rows that are there as long as the hold that they are kept for."""

from __future__ import annotations

import pytest

from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.uris import local_path
from slackwater.repr.errors import user_error


@pytest.fixture
def stashed(tmp_path):
    return StashedRows(LocalBlobs(tmp_path), 3)


def put(stashed):
    return stashed.blobs.put(stashed.directory, ".parquet", lambda file: file.write(b"x")).uri


def is_there(uri):
    return local_path(uri).exists()


def test_a_file_is_there_until_its_hold_ends(stashed):
    for hold in ("h", "other"):
        stashed.begin(hold)
    files = [put(stashed) for _ in range(3)]
    assert [stashed.keep(hold, uri) for hold, uri in zip(("h", "h", "other"), files, strict=True)]
    stashed.end("h")
    assert [is_there(uri) for uri in files] == [False, False, True]


@pytest.mark.parametrize("ended", [True, False])
def test_a_file_for_a_hold_that_is_over_goes_at_once(stashed, ended):
    if ended:
        stashed.begin("h")
        stashed.end("h")
    uri = put(stashed)
    assert not stashed.keep("h", uri)
    assert not is_there(uri)


def test_files_of_other_leaders_go_and_own_ones_stay(stashed):
    before, own = put(StashedRows(stashed.blobs, 2)), put(stashed)
    # The number of one begins with that of the other.
    later = put(StashedRows(stashed.blobs, 33))
    stashed.clear_others()
    assert [is_there(uri) for uri in (before, own, later)] == [False, True, False]
    assert [path.name for path in local_path(stashed.blobs.uri("peeks")).iterdir()] == ["3"]


def test_nothing_to_clear_is_no_failure(stashed):
    stashed.clear_others()


def test_a_file_that_cannot_be_deleted_ends_no_statement(stashed, monkeypatch):
    def away(self, uri):
        raise user_error("SLACKWATER_STORAGE_UNAVAILABLE", what="a file", reason="away")

    uri = put(stashed)
    stashed.begin("h")
    stashed.keep("h", uri)
    with monkeypatch.context() as patched:
        patched.setattr(LocalBlobs, "delete", away)
        stashed.end("h")
    assert is_there(uri)
