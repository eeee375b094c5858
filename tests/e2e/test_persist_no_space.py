"""Disks that really become full: a small tmpfs below the files, and below the metastore."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.support.persist.persistence import contents, new_environment, own_shard, updates

from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import Append
from slackwater.repr.errors import SlackwaterError

BALLAST_BYTES = 4_000_000
DISK_BYTES = 16_000_000


@pytest.fixture
def disk():
    """A file system of 16 MB, which the user of the PostgreSQL server can reach as well."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-disk-"))
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    folder.chmod(0o755)
    (folder / "ballast").write_bytes(b"x" * BALLAST_BYTES)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def make_space(disk):
    (disk / "ballast").unlink()


def rows(number):
    """About 100 kB that no compression makes small."""
    texts = [os.urandom(500).hex() for _ in range(100)]
    return updates(*((number, text, number, 1) for text in texts))


def append(client, shard, number, *, as_file):
    table = rows(number)
    if as_file:
        part = file_part(client.blobs, table, client.files.shard_directory(shard))
    else:
        part = inline_part(table)
    client.commits.commit([Append(shard, number, number + 1, (part,))])


def fill(client, shard, *, as_file):
    """Appends until it fails; returns how many appends were acknowledged."""
    for number in range(1000):
        try:
            append(client, shard, number, as_file=as_file)
        except SlackwaterError as error:
            if error.condition != "SLACKWATER_NO_SPACE":
                raise
            return number
    raise AssertionError("the disk is never full")


def check_then_go_on(env, client, shard, acknowledged, disk, *, as_file):
    assert acknowledged > 5
    for _ in range(3):
        with pytest.raises(SlackwaterError) as caught:
            append(client, shard, acknowledged, as_file=as_file)
        assert caught.value.condition == "SLACKWATER_NO_SPACE"
        assert "Free space at" in caught.value.message
    expected = dict.fromkeys(range(acknowledged), 100)
    assert counted(client, shard) == expected
    make_space(disk)
    append(client, shard, acknowledged, as_file=as_file)
    expected[acknowledged] = 100
    assert counted(client, shard) == expected
    assert counted(env.lead(expected_epoch=1), shard) == expected


def counted(client, shard):
    found: dict[int, int] = {}
    for number, _ in contents(client, shard, client.reads.upper(shard)):
        found[number] = found.get(number, 0) + 1
    return found


def test_no_space_for_files(disk, new_database):
    env = new_environment(new_database(), disk / "environment")
    client = env.lead()
    shard = own_shard(client)
    acknowledged = fill(client, shard, as_file=True)
    left = [blob.uri for blob in client.blobs.list(client.blobs.uri())]
    assert len(left) == acknowledged
    check_then_go_on(env, client, shard, acknowledged, disk, as_file=True)
    env.engine.dispose()


def test_no_space_for_sqlite(disk, tmp_path):
    env = new_environment(f"sqlite:///{disk}/metastore.sqlite", tmp_path)
    client = env.lead()
    shard = own_shard(client)
    acknowledged = fill(client, shard, as_file=False)
    check_then_go_on(env, client, shard, acknowledged, disk, as_file=False)
    env.engine.dispose()


@pytest.mark.postgres
def test_no_space_for_postgres(disk, postgres, tmp_path):
    """A tablespace, since the server itself ends when its log has no space."""
    space = disk / "space"
    space.mkdir()
    if postgres.user is not None:
        shutil.chown(space, postgres.user)
    url = postgres.new_database(tablespace=space)
    env = new_environment(url, tmp_path)
    client = env.lead()
    shard = own_shard(client)
    acknowledged = fill(client, shard, as_file=False)
    check_then_go_on(env, client, shard, acknowledged, disk, as_file=False)
    env.engine.dispose()
    postgres.drop_with_tablespace(url)
