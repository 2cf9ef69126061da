"""Snapshots, forks and restored clusters have the segments that the store alone had, and none of them deletes another's objects."""

from __future__ import annotations

import os
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from ottla.broker.tiers.objects import OWNER
from ottla.client.failures import Failure
from ottla.local.directory import TIERS
from ottla.local.nodes import tier_properties
from ottla.local.snapshots import stored_objects
from ottla.local.snapshots.layout import path_of
from ottla.local.snapshots.placing import place_fork, restore
from ottla.local.snapshots.rewinding import rewind_fork
from ottla.local.snapshots.taking import take
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.test_tiers import COUNT, create, local_start, numbers, tiered, write

pytestmark = pytest.mark.timeout(240)
TOPIC = "events"


def cluster_of(directory: Path) -> Cluster:
    properties = {name.replace(".", "_"): value for name, value in tier_properties(str(directory / TIERS), 1).items()}
    return Cluster(1, directory=str(directory), file_delete_delay_ms="0", **properties)


def objects(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (directory / TIERS).rglob("*.*") if path.is_file()}


def delete_records(cluster: Cluster, before: int) -> None:
    place = confluent_kafka.TopicPartition(TOPIC, 0, before)
    admin = AdminClient(cluster.client_settings)
    admin.delete_records([place])[place].result(30)


def test_a_fork_and_a_restored_cluster_read_what_the_cluster_has_deleted_since(tmp_path: Path) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    with cluster_of(origin) as cluster:
        create(cluster, TOPIC)
        write(cluster, TOPIC, 0, COUNT)
        tiered(cluster, TOPIC)
        assert local_start(cluster, TOPIC) > COUNT // 2
        taken_ms = take(str(origin), "before")[0].taken_ms
        kept = objects(origin)
        assert objects(Path(path_of(str(origin), "before"))) == kept  # by hard links
        delete_records(cluster, COUNT)
        eventually(lambda: not objects(origin), "the cluster has deleted all", 60)

        fork = place_fork(path_of(str(origin), "before"), str(copy))
        assert (copy / TIERS / OWNER).read_text() == fork.cluster_id
        with cluster_of(copy) as forked:
            assert numbers(forked, TOPIC, COUNT) == list(range(COUNT))
            write(forked, TOPIC, COUNT, 100)
            delete_records(forked, COUNT // 2)
            eventually(lambda: len(objects(copy)) < len(kept), "the fork has deleted some of its own", 60)
        assert objects(Path(path_of(str(origin), "before"))) == kept
        with pytest.raises(Failure, match="events have segments in remote storage, which cannot be rewound"):
            rewind_fork(str(copy), taken_ms)

        cluster.stop(1)
        restore(str(origin), "before")
        assert objects(origin) == kept
        cluster.start(1)
        assert numbers(cluster, TOPIC, COUNT) == list(range(COUNT))


def test_what_is_being_written_or_deleted_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    folder = source / TIERS / "kafka-tiered-storage" / "events-0-x"
    folder.mkdir(parents=True)
    for name in ("1.log", "2.log", ".unfinished-3"):
        (folder / name).write_bytes(b"-")
    (source / TIERS / OWNER).write_text("its-cluster")

    def vanishing(old: str, new: str) -> bool:
        if old.endswith("2.log"):
            raise FileNotFoundError(old)
        os.link(old, new)
        return True

    monkeypatch.setattr(stored_objects, "link_file", vanishing)
    for _ in range(2):
        stored_objects.bring_objects(str(source), str(target))
        assert [path.name for path in target.rglob("*") if path.is_file()] == ["1.log"]
    assert stored_objects.has_objects(str(target)) and not stored_objects.has_objects(str(tmp_path))
    stored_objects.bring_objects(str(tmp_path), str(target))  # a cluster without remote storage
