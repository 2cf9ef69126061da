"""A mirror between two clusters with logins: its user has the permissions in docs/MIRROR.md, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED
from ottla.client.group_offsets import commit_offsets, committed_offsets
from ottla.testing import Cluster
from tests.ottla.conftest import Finished, run_here
from tests.ottla.mirror.conftest import WAIT_S_MAX

IN_SOURCE = [
    *("describe topic:orders", "describe-configs topic:orders", "read topic:orders", "describe group:readers"),
    "describe cluster",
    *(
        f"{operation} topic:{name}"
        for name in ("heartbeats", "mm2-offset-syncs.east.internal")
        for operation in ("create", "describe", "read", "write")
    ),
]
TOPIC_OPERATIONS = ("describe", "read", "write", "create", "alter", "describe-configs", "alter-configs")
IN_TARGET = [
    *(
        f"{operation} topic:{name}"
        for name in ("west.*", "mm2-offsets.west.internal", "heartbeats")
        for operation in TOPIC_OPERATIONS
    ),
    *("read group:ottla-mirror.west.east", "read group:readers", "describe group:readers"),
    *("describe transactional-id:ottla-mirror.west.east.*", "write transactional-id:ottla-mirror.west.east.*"),
    *("alter cluster", "describe cluster"),
]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with Cluster(1, secure=True) as west, Cluster(1, secure=True) as east:
        west.topic("orders", seed=["1", "2"])
        yield west, east


def client_file(cluster: Cluster, name: str, rights: list[str], directory: Path) -> str:
    """Make a user, and return its client properties. A permission for a name with `*` is for all names that begin so."""
    settings = cluster.add_user(name, *(right for right in rights if not right.endswith("*")))
    for right in rights:
        if right.endswith("*"):
            operation, resource = right[:-1].split()
            words = ("acl", "add", name, operation, resource, "--prefixed")
            assert run_here(*words, "-b", cluster.bootstrap, "--config", cluster.client_file).code == 0
    text = Path(cluster.client_file).read_text()
    text = re.sub(r'username="[^"]*"', f'username="{name}"', text)
    text = re.sub(r'password="[^"]*"', f'password="{settings["sasl.password"]}"', text)
    path = directory / f"{cluster.nodes[1].port}-{name}.properties"
    path.write_text(text)
    return str(path)


def run(pair: tuple[Cluster, Cluster], files: tuple[str, str], *options: str) -> Finished:
    west, east = pair
    sides = ("-b", west.bootstrap, "--config", files[0], "--to", east.bootstrap, "--to-config", files[1])
    return run_here("mirror", "run", "west", "east", *sides, "--topics", "orders", "--once", *options)


def acls(cluster: Cluster, user: str) -> list[str]:
    done = run_here("acl", "list", "-b", cluster.bootstrap, "--config", cluster.client_file, "-o", "json")
    return sorted(line for line in done.out.splitlines() if f"User:{user}" in line)


def test_what_a_missing_permission_ends_it_ends_before_anything_is_made(
    pair: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    source = client_file(pair[0], "whole", IN_SOURCE, tmp_path)
    for number, missing in enumerate(("group:ottla-mirror", "transactional-id:", "topic:mm2-offsets")):
        rights = [right for right in IN_TARGET if missing not in right]
        done = run(pair, (source, client_file(pair[1], f"part{number}", rights, tmp_path)))
        assert done.code == FAILED and "AUTHORIZATION_FAILED" in done.err, done.err
        assert [topic.name for topic in pair[1].metadata().topics if not topic.name.startswith("__")] == []


def test_the_permissions_of_the_page_are_enough_and_readers_of_the_source_may_read_in_the_target(
    pair: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    west, east = pair
    west.add_user("ann", "read topic:orders", "write topic:orders")
    west._do(lambda cluster: commit_offsets(cluster, "readers", {("orders", 0): 2}), WAIT_S_MAX)
    files = client_file(west, "mirror", IN_SOURCE, tmp_path), client_file(east, "mirror", IN_TARGET, tmp_path)
    done = run(pair, files, "--sync-group-offsets")
    assert done.code == 0, done.err
    (mirrored,) = re.findall(r"^(\d+) records .* mirrored", done.err, re.M)
    assert int(mirrored) >= 2, done.err  # and a heartbeat for each second of the test
    assert not [line for line in done.err.splitlines() if "authorized" in line], done.err
    assert [record.value for record in east.records("west.orders")] == [b"1", b"2"]
    assert east._do(lambda cluster: committed_offsets(cluster, "readers"), WAIT_S_MAX) == {("west.orders", 0): 2}
    (entry,) = acls(east, "ann")
    assert '"west.orders"' in entry.replace("topic:", "") and "read" in entry
    removed = run_here(
        *("acl", "remove", "User:ann", "read", "topic:orders", "-b", west.bootstrap, "--config", west.client_file)
    )
    assert removed.code == 0, removed.err
    assert run(pair, files).code == 0
    assert acls(east, "ann") == [entry]


def test_entries_stay_out_without_acls(pair: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    west, east = pair
    west.add_user("bob", "read topic:orders")
    files = client_file(west, "quiet", IN_SOURCE, tmp_path), client_file(east, "quiet", IN_TARGET, tmp_path)
    assert run(pair, files, "--no-acls").code == 0
    assert acls(east, "bob") == []
