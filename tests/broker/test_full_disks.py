"""An operator sees that a disk is full, and that it has room again."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace

import pytest

from ottla.broker.scheduled_tasks import REPEAT_MS, ROOM_BYTES, FullDisks
from ottla.storage.errors import DiskFull, OutOfResources, StorageFailure
from tests.manual_clock import ManualClock

NO_ROOM = DiskFull("/a/orders-0/0.log", OSError(errno.ENOSPC, "No space left on device"))


class Disks:
    """Two log directories with two logs each. The test says which appends failed, and how many bytes are free."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.free = {"/a": 0, "/b": 5 * ROOM_BYTES}
        self.directories = [SimpleNamespace(path=path, online=True) for path in self.free]
        self.logs = {
            path: [
                SimpleNamespace(topic="orders", partition=index, room=SimpleNamespace(append_failure=None))
                for index in (0, 1)
            ]
            for path in self.free
        }
        self.disks = FullDisks(self.clock, self, self)

    def usable_bytes(self, path: str) -> tuple[int, int]:
        return 100 * ROOM_BYTES, self.free[path]

    def in_directory(self, directory: SimpleNamespace) -> list[SimpleNamespace]:
        return self.logs[directory.path]

    def fails(self, failure: StorageFailure | None, *indexes: int) -> None:
        for index in indexes:
            self.logs["/a"][index].room.append_failure = failure

    def look(self) -> dict[str, str]:
        self.disks.look()
        return dict(self.disks.full)


@pytest.fixture
def disks() -> Disks:
    return Disks()


def test_a_full_directory_is_an_error_each_minute_until_an_append_succeeds(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert disks.look() == {}
    disks.fails(NO_ROOM, 0, 1)
    said = "Cannot append to orders-0 and 1 more partitions: no space left in /a (0 bytes free)"
    assert disks.look() == {"/a": said}
    disks.clock.advance(REPEAT_MS - 1)
    disks.look()
    assert [(each.levelname, each.message) for each in caplog.records] == [("ERROR", said)]
    disks.clock.advance(1)
    disks.look()
    assert [each.message for each in caplog.records] == [said, said]
    disks.fails(None, 0, 1)
    assert disks.look() == {}
    assert caplog.records[-1].message == "Log directory /a has room again"


def test_a_directory_with_room_again_is_not_full_though_no_producer_has_come_back(disks: Disks) -> None:
    disks.fails(NO_ROOM, 1)
    assert list(disks.look()) == ["/a"]
    disks.free["/a"] = ROOM_BYTES
    assert disks.look() == {}


def test_a_quota_of_the_file_system_has_free_bytes_and_no_room(disks: Disks) -> None:
    disks.free["/a"] = 5 * ROOM_BYTES
    disks.fails(DiskFull("/a", OSError(errno.EDQUOT, "Disk quota exceeded")), 0)
    assert list(disks.look()) == ["/a"]


def test_want_of_descriptors_and_a_failed_disk_are_no_full_disk(disks: Disks) -> None:
    disks.fails(OutOfResources("/a", OSError(errno.EMFILE, "Too many open files")), 0)
    assert disks.look() == {}
    disks.fails(NO_ROOM, 0)
    disks.directories[0].online = False
    assert disks.look() == {}


def test_free_bytes_are_measured_by_directory(disks: Disks) -> None:
    (family,) = disks.disks.metrics()
    assert {sample.labels["logdirectory"]: sample.value for sample in family.samples} == disks.free
