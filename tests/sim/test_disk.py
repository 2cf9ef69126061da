"""The simulated disk keeps its own promises: what is synced survives, what is not may go in pieces."""

from __future__ import annotations

import random

import pytest

from storage.errors import DiskFull, StorageFailure
from tests.sim.disk import SimDisk


def disk(seed: int = 1, room_bytes: int = 1 << 30) -> SimDisk:
    made = SimDisk(random.Random(seed), lambda: 0, room_bytes)
    made.make_dirs("/data")
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
