"""The simulated disk keeps its guarantees: synced data survives, and unsynced data may be lost in parts."""

from __future__ import annotations

import random

import pytest

from ottla.storage.errors import DiskFull, StorageFailure
from tests.sim.disk import Killed, SimDisk


def disk(seed: int = 1, room_bytes: int = 1 << 30) -> SimDisk:
    made = SimDisk(random.Random(seed), lambda: 0, room_bytes)
    made.make_dirs("/data")
    made.sync_dir("/")
    return made


def mapped(on: SimDisk, path: str, data: bytes):
    on.create(path)
    file = on.map(path, 1 << 20, writable=True)
    file.ensure(len(data))
    file.buffer[: len(data)] = data
    return file


def test_synced_bytes_survive_power_loss_and_unsynced_ones_sometimes_do_not() -> None:
    lost = 0
    for seed in range(50):
        d = disk(seed)
        file = mapped(d, "/data/log", b"a" * 8192)
        file.flush()
        d.sync_dir("/data")
        file.buffer[4096:8192] = b"b" * 4096
        d.crash(power=True)
        after = d.read("/data/log")
        assert after is not None
        assert after[:4096] == b"a" * 4096
        lost += after[4096:] != b"b" * 4096
    assert 5 < lost < 50


def test_a_kill_loses_nothing_that_was_written() -> None:
    d = disk()
    mapped(d, "/data/log", b"x" * 100)
    d.crash(power=False)
    assert d.read("/data/log") == b"x" * 100


def test_a_file_whose_directory_was_not_synced_may_be_gone() -> None:
    outcomes = set()
    for seed in range(30):
        d = disk(seed)
        mapped(d, "/data/log", b"x").flush()
        d.crash(power=True)
        outcomes.add(d.exists("/data/log"))
    assert outcomes == {True, False}


def test_an_atomic_write_leaves_the_old_content_or_the_new_one() -> None:
    for seed in range(50):
        d = disk(seed)
        d.write_atomic("/data/checkpoint", b"old")
        d.write_atomic("/data/checkpoint", b"new", sync=seed % 2 == 0)
        d.crash(power=True)
        content = d.read("/data/checkpoint")
        assert content == b"new" if seed % 2 == 0 else content is not None


def test_a_full_disk_refuses_to_grow_and_keeps_what_is_there() -> None:
    d = disk(room_bytes=10_000)
    file = mapped(d, "/data/log", b"x" * 8000)
    with pytest.raises(DiskFull):
        file.ensure(20_000)
    assert d.read("/data/log") == b"x" * 8000


def test_a_failed_sync_is_reported_once_and_has_saved_nothing() -> None:
    d = disk()
    file = mapped(d, "/data/log", b"x" * 100)
    d.sync_dir("/data")
    d.fail_next_syncs = 1
    with pytest.raises(StorageFailure):
        file.flush()


def test_views_handed_out_stay_readable_when_the_file_grows() -> None:
    d = disk()
    file = mapped(d, "/data/log", b"x" * 100)
    view = file.buffer[:10]
    file.ensure(5000)
    assert bytes(view) == b"x" * 10


def test_a_second_sync_after_a_failed_one_succeeds_and_saves_nothing() -> None:
    lost = 0
    for seed in range(30):
        d = disk(seed)
        file = mapped(d, "/data/log", b"x" * 100)
        d.sync_dir("/data")
        d.fail_next_syncs = 1
        with pytest.raises(StorageFailure):
            file.flush()
        file.flush()
        assert d.read("/data/log") == b"x" * 100, "the kernel still shows it"
        d.crash(power=True)
        lost += d.read("/data/log") != b"x" * 100
    assert lost > 5


def test_what_is_written_again_after_a_failed_sync_is_saved_by_the_next() -> None:
    for seed in range(30):
        d = disk(seed)
        file = mapped(d, "/data/log", b"x" * 5000)
        d.sync_dir("/data")
        d.fail_next_syncs = 1
        with pytest.raises(StorageFailure):
            file.flush()
        d.pwrite("/data/log", 0, b"x" * 5000)
        file.flush()
        d.crash(power=True)
        assert d.read("/data/log") == b"x" * 5000


def test_a_new_directory_is_gone_with_all_that_is_in_it_unless_its_parent_was_synced() -> None:
    outcomes = set()
    for seed in range(30):
        d = disk(seed)
        d.make_dirs("/data/topic-0")
        d.write_atomic("/data/topic-0/file", b"x")
        d.crash(power=True)
        outcomes.add(d.read("/data/topic-0/file"))
    assert outcomes == {b"x", None}


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_process_killed_at_its_nth_call_does_nothing_from_then_on(calls: int) -> None:
    d = disk()
    d.kill_after(calls)
    with pytest.raises(Killed):
        for i in range(10):
            d.create(f"/data/{i}")
    with pytest.raises(Killed):
        d.create("/data/late")
    d.crash(power=False)
    assert d.list_dir("/data") == [str(i) for i in range(calls - 1)]
    d.create("/data/next life")


def test_a_mapping_of_a_process_that_is_gone_writes_nowhere() -> None:
    d = disk()
    file = mapped(d, "/data/log", b"x" * 100)
    d.crash(power=False)
    file.buffer[:5] = b"ghost"
    with pytest.raises(Killed):
        file.flush()
    assert d.read("/data/log") == b"x" * 100


def test_the_nth_call_fails_and_the_ones_after_it_work() -> None:
    d = disk()
    d.fail_after(2)
    d.create("/data/a")
    with pytest.raises(StorageFailure):
        d.rename("/data/a", "/data/b")
    d.rename("/data/a", "/data/b")
    assert d.list_dir("/data") == ["b"]
