"""The commands show remote storage to users: both ends of a log, the copied part, and the reason why the copy waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.test_tiers import COUNT, create, tiered_cluster, write
from tests.ottla.conftest import Cli as Node
from tests.ottla.conftest import Finished, run_here

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "segments"


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[Cluster]:
    with tiered_cluster(1, store) as running:
        yield running


def ottla(cluster: Cluster, *arguments: str) -> Finished:
    admin = f"1@127.0.0.1:{cluster.nodes[1].admin_port}"
    return run_here(*arguments, "--bootstrap", cluster.bootstrap, "--admin", admin)


def row(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    admin = ("--admin", f"1@127.0.0.1:{cluster.nodes[1].admin_port}")
    (found,) = Node(cluster.bootstrap).rows(*arguments, *admin)
    return found


def test_why_nothing_is_copied_is_seen_and_then_what_is_where(cluster: Cluster, store: Path) -> None:
    store.write_text("no folder")
    create(cluster, "events")
    write(cluster, "events", 0, COUNT)
    eventually(lambda: row(cluster, "tier", "status", "events")["failing"], "the store fails", 30)
    state = row(cluster, "tier", "status")
    assert (state["leader"], state["copied_to"], state["remote_bytes"], state["local_start"]) == (1, None, 0, 0)
    assert state["lag_segments"] > 5 and state["lag_bytes"] > 5 * 29_000
    described = ottla(cluster, "topic", "describe", "events")
    assert f"segments of partition 0 are not copied to remote storage at node 1: {state['waits']}" in described.err

    store.unlink()

    def is_left() -> bool:
        found = row(cluster, "tier", "status", "events")
        return not found["lag_segments"] and found["local_start"] == found["copied_to"] + 1

    eventually(is_left, "all sealed segments are copied, and have left the disk", 30)
    state, described_row = row(cluster, "tier", "status", "events"), row(cluster, "topic", "describe", "events")
    assert (state["waits"], state["failing"], state["log_start"]) == (None, False, 0)
    assert described_row["first_offset"] == 0 and described_row["next_offset"] == COUNT
    assert described_row["local_offset"] == state["local_start"] == state["copied_to"] + 1
    assert described_row["remote_offset"] == state["copied_to"]
    assert described_row["remote_bytes"] == state["remote_bytes"] > state["local_bytes"]
    assert not ottla(cluster, "topic", "describe", "events").err


def test_a_topic_without_remote_storage_has_no_columns_of_it(cluster: Cluster) -> None:
    cluster.topic("plain", partitions=1)
    assert "LOCAL_OFFSET" not in ottla(cluster, "topic", "describe", "plain").out
    done = ottla(cluster, "tier", "status", "plain")
    assert "no partition that these nodes lead has remote storage" in done.err


def test_where_no_admin_listener_is_known_the_command_says_how_to_name_one(cluster: Cluster) -> None:
    done = run_here("tier", "status", "--bootstrap", cluster.bootstrap)
    assert done.code != 0 and "--admin-port" in done.err
