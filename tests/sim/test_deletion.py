"""Deleted partitions and clean stops on a simulated disk: the number of their syncs, and the state that a crash between the
steps leaves.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ottla.storage.directories.log_dirs import open_log_dirs
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import REMOVED_AT_ONCE
from ottla.storage.errors import DiskFull
from tests.sim.disk import Killed
from tests.sim.disk_node import DATA, NOW_MS, TOPIC_ID, DiskNode, fills
from tests.storage.chores import remove_deleted, rename_deleted, to_rename

OTHER_ID = TOPIC_ID[::-1]
PARTITIONS = 30


def with_partitions(count: int = PARTITIONS, seed: int = 0) -> DiskNode:
    """Return a node with `topic-0` to `topic-<count - 1>`, a record in each, and `other-0` beside them."""
    node = DiskNode(seed)
    for partition in range(count):
        log = node.logs.create("topic", partition, TOPIC_ID, node.config, now_ms=NOW_MS)
        node.append(partition, log=log)
    node.append(7, log=node.create("other", OTHER_ID))
    for log in node.logs.open:
        log.flush()
    node.logs.checkpoints.write_recovery_points()
    return node


def counted(node: DiskNode) -> Counter[str]:
    """Return the calls of the disk from now on, by kind; for directories by path, too."""
    counts: Counter[str] = Counter()

    def count(kind: str, path: str) -> None:
        counts[f"{kind} {path}" if kind == "sync directory" else kind] += 1

    node.disk.on_call = count
    return counts


def delete_topic(node: DiskNode, count: int = PARTITIONS) -> None:
    for partition in range(count):
        node.logs.delete(TOPIC_ID, partition, NOW_MS)


def names(node: DiskNode, suffix: str) -> list[str]:
    return [name for name in node.disk.list_dir(DATA) if name.endswith(suffix)]


def test_deleting_takes_no_system_call_and_renaming_all_partitions_one_sync() -> None:
    node = with_partitions()
    counts = counted(node)
    delete_topic(node)
    assert not counts and node.logs.open.get(TOPIC_ID, 0) is None
    rename_deleted(node.logs)
    assert counts == {"rename": PARTITIONS, f"sync directory {DATA}": 1}
    assert len(names(node, "-delete")) == PARTITIONS


def test_unlinking_takes_a_bounded_number_per_call() -> None:
    node = with_partitions(REMOVED_AT_ONCE + 5)
    delete_topic(node, REMOVED_AT_ONCE + 5)
    rename_deleted(node.logs)
    assert remove_deleted(node.logs, NOW_MS) == REMOVED_AT_ONCE
    assert remove_deleted(node.logs, NOW_MS) == 5
    assert remove_deleted(node.logs, NOW_MS) == 0 and not names(node, "-delete")


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_of_a_deletion_leaves_no_partition_of_the_topic_to_be_served(power: bool) -> None:
    for step in range(1, PARTITIONS + 2):
        node = with_partitions(seed=step)
        delete_topic(node)
        node.disk.kill_after(step)
        with pytest.raises(Killed):
            rename_deleted(node.logs)
        node.lose_power() if power else node.kill()
        for log in list(node.logs.open):
            if log.topic == "topic":
                node.logs.set_aside(log)  # like the broker: the metadata does not know its topic
        while remove_deleted(node.logs, NOW_MS):
            pass
        left = [name for name in node.disk.list_dir(DATA) if name.startswith("topic-")]
        assert all(name.endswith("-stray") for name in left)
        other = node.logs.open.get(OTHER_ID, 0)
        assert other is not None and fills(other) == [7]


def test_a_topic_created_again_before_the_old_directory_was_renamed_does_not_get_the_old_records() -> None:
    for power in (False, True):
        node = with_partitions(3)
        delete_topic(node, 3)
        new = node.create("topic", b"n" * 16)
        assert len(names(node, "-delete")) == 3, "all that waited go together, with one sync"
        node.append(99, log=new)
        new.flush()
        node.lose_power() if power else node.kill()
        again = node.logs.open.get(b"n" * 16, 0)
        assert again is not None and fills(again) == [99] and node.logs.open.get(TOPIC_ID, 0) is None


def test_a_full_disk_keeps_deleted_partitions_for_the_next_attempt() -> None:
    node = with_partitions(2)
    delete_topic(node, 2)
    rename = node.disk.rename

    def full(source: str, target: str) -> None:
        raise DiskFull(source, OSError("no space left"))

    node.disk.rename = full
    with pytest.raises(DiskFull):
        rename_deleted(node.logs)
    with pytest.raises(DiskFull):
        node.create("topic", b"n" * 16)
    assert node.logs.directories[0].online and to_rename(node.logs) == 2
    node.disk.rename = rename
    rename_deleted(node.logs)
    assert to_rename(node.logs) == 0 and len(names(node, "-delete")) == 2


def test_a_clean_stop_syncs_the_log_directory_once_for_all_partitions_and_seven_times_at_most_per_partition() -> None:
    node = DiskNode()
    for partition in range(PARTITIONS):
        log = node.logs.create("topic", partition, TOPIC_ID, node.config, now_ms=NOW_MS)
        node.append(partition, log=log, producer_id=5, producer_epoch=0, base_sequence=0)
    counts = counted(node)
    node.logs.close_some(node.logs.begin_close())
    assert counts[f"sync directory {DATA}"] == 0
    for partition in range(PARTITIONS):
        assert counts[f"sync directory {DATA}/topic-{partition}"] == 1
    assert counts["sync"] <= 6 * PARTITIONS, "log, two indexes, epochs, producers, the topic's id"
    node.logs.end_close()
    assert counts[f"sync directory {DATA}"] <= 6, "names of partitions, three checkpoints, the mark"


def test_an_idle_partition_costs_a_clean_stop_no_sync_of_its_directory() -> None:
    node = with_partitions(3)
    node.stop()
    counts = counted(node)
    node.logs.close_some(node.logs.begin_close())
    assert not [kind for kind in counts if kind.startswith("sync directory")]
    assert counts["sync"] <= 3 * 4, "of files that are clean: their log and indexes"


def test_a_start_that_is_cut_short_before_the_logs_are_open_does_not_mark_them_as_clean() -> None:
    """The controller's port may be in use: the recovery from the earlier crash is still to be done."""
    node = with_partitions(2)
    node.disk.crash(power=False)
    before = node.disk.tree(DATA)
    Logs(node.disk, open_log_dirs(node.disk, [DATA], "cluster", 0), Random(1)).close_all()
    assert node.disk.tree(DATA) == before
