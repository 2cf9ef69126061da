"""Moves of a replica between log directories: seeded histories with crashes, known mistakes that they notice, and directed
cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from unittest import mock

import pytest

from ottla.broker.replication import log_moves
from ottla.storage.directories import future_logs
from ottla.storage.directories.future_logs import FutureLogs
from ottla.storage.directories.log_checkpoints import LogCheckpoints
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.retention import delete_records
from ottla.storage.log_config import NEVER, LogConfig
from tests.effort import seeds
from tests.histories import Mutant, Patch, assert_noticed, parts, play
from tests.sim.disk import Killed
from tests.sim.loop import run
from tests.sim.move_history import TOPIC_ID, MovingNode, run_history
from tests.storage.chores import retain, to_rename

CALLS_OF_A_MOVE_MAX = 400


@contextmanager
def in_small_slices() -> Iterator[None]:
    """Slow the move down to many turns, so that many events happen between two of them."""
    with mock.patch.multiple(log_moves, PIECE_BYTES=700, SLICE_BYTES=2000):
        yield


@pytest.fixture(autouse=True)
def small_slices() -> Iterator[None]:
    with in_small_slices():
        yield


def run_seed(seed: int) -> None:
    with in_small_slices():
        run(run_history(seed))


@pytest.mark.parametrize("seeds", parts(seeds(30, long=3000), 30), ids=str)
def test_whatever_happens_while_a_replica_moves_no_record_is_lost(seeds: range) -> None:
    play(run_seed, seeds)


async def filled(node: MovingNode, appends: int = 20) -> MovingNode:
    for _ in range(appends):
        await node.do("append")
    return node


async def crash_in_a_move(call: int, power: bool) -> bool:
    """Let the process die at this call of a move under appends; return False if the move was over before."""
    node = await filled(MovingNode(call), 8)
    for name in ("elect", "delete_records", "flush", "append"):
        await node.do(name)
    node.move_to("/b")
    node.host.disk.kill_after(call)
    with suppress(Killed):
        for _ in range(8):
            await node.do("append")
            await asyncio.sleep(0.01)
        await node.finished()
    crashed = node.host.disk.killed
    node.repair()
    if crashed:
        await node.crash(power=power)
        await node.do("append")
    if not node.future_directories() and node.directory == "a":
        node.move_to("/b")  # not even the directory of the copy was on the disk
    await node.finished()
    assert node.directory == "b"
    node.check()
    return crashed


def crash_at_any_call(power: bool) -> None:
    for call in range(1, CALLS_OF_A_MOVE_MAX):
        if not run(crash_in_a_move(call, power)):
            assert call > 20, "a move makes more calls"
            return
    raise AssertionError("the move did not end")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_at_any_call_of_a_move_loses_nothing_and_the_move_goes_on(power: bool) -> None:
    crash_at_any_call(power)


def almost_all(
    current: Log,
    future: Log,
    bytes_max: int,
    now_ms: int,
    *,
    disk_job_done: bool = False,
    copy: Callable[..., object] = future_logs.copy_some,
) -> object:
    missing = current.log_end_offset - future.log_end_offset
    return (
        0
        if missing <= 3 and future.segments.size
        else copy(current, future, bytes_max, now_ms, disk_job_done=disk_job_done)
    )


def forgotten(futures: FutureLogs, future: Log, now_ms: int) -> None:
    del futures._logs._futures[(future.topic_id, future.partition)]


def only_if_all(
    checkpoints: LogCheckpoints,
    only: LogDir | None = None,
    write: Callable[..., list[LogDir]] = LogCheckpoints.write_log_starts,
) -> list[LogDir]:
    return write(checkpoints) if only is None else []


MUTANTS: dict[str, Patch] = {
    "the log is replaced before the future log has caught up": (future_logs, "copy_some", almost_all),
    "epochs are not taken over": (LeaderEpochs, "replace", lambda epochs, entries, assigned: None),
    "the future log is kept after the end of the move": (FutureLogs, "drop", forgotten),
    "the log start is not followed": (future_logs, "follow_start", lambda current, future, now_ms: None),
    "log starts are not written before": (LogCheckpoints, "write_log_starts", only_if_all),
}


def is_noticed(name: str, seed: int) -> bool:
    return Mutant(name, (MUTANTS[name],)).is_noticed(lambda: run_seed(seed))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_in_moving_is_noticed(name: str) -> None:
    assert_noticed("moves", name, is_noticed)


def test_the_old_log_keeps_its_name_until_the_new_one_is_on_the_disk_and_so_does_what_is_flushed() -> None:
    async def main() -> None:
        node = await filled(MovingNode(1), 8)
        await node.do("flush")
        await node.do("append")
        flushed, end = node.log.recovery_point, node.log.log_end_offset
        names: list[tuple[str, str, int]] = []

        def note(kind: str, path: str) -> None:
            if path in ("/a", "/b") or (kind == "rename" and path.count("/") == 2):
                names.append((kind, path[:6], node.log.recovery_point))

        node.host.disk.on_call = note
        node.move_to("/b")
        await node.finished()
        renamed = names.index(("rename", "/a/t-0", flushed))
        assert names[renamed - 2 : renamed + 2] == [
            ("rename", "/b/t-0", flushed),
            ("sync directory", "/b", flushed),
            ("rename", "/a/t-0", flushed),
            ("sync directory", "/a", flushed),
        ]
        node.log.flush()
        assert node.log.recovery_point == end > flushed

    run(main())


def test_of_two_logs_with_the_partitions_name_the_one_that_was_appended_to_is_kept() -> None:
    """The process was killed after the future log took the name, and before the old log was renamed."""

    async def main() -> None:
        node = await filled(MovingNode(1))
        with mock.patch.object(Logs, "rename_deleted"):
            node.move_to("/b")
            for _ in range(100):
                await node.do("wait")
            assert node.directory == "b"
            await node.do("append")
            await node.crash(power=False)
        assert node.directory == "b"
        await node.finished()
        node.check()
        assert node.host.disk.list_dir("/b").count("t-0") == 1

    run(main())


def test_a_replica_that_goes_back_at_once_waits_for_the_name_of_its_former_log() -> None:
    async def main() -> None:
        node = await filled(MovingNode(1))
        for path in ("/b", "/a", "/b"):
            node.move_to(path)
            for _ in range(1000):
                if f"/{node.directory}" != path:
                    await asyncio.sleep(0.001)
                    node.look()
        await node.finished()
        node.check()

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_a_replica_that_goes_back_at_once_keeps_its_log_start_if_a_power_loss_takes_the_new_name(seed: int) -> None:
    """The former log is the partition's log again, so its log start must be on the disk as long as it has its name."""

    async def main() -> None:
        node = await filled(MovingNode(seed))
        for name in ("flush", "elect"):
            await node.do(name)
        node.promise.start = delete_records(node.log, node.log.log_end_offset - 3)
        assert not node.logs.checkpoints.write_log_starts()
        with mock.patch.object(Logs, "rename_deleted"):
            node.move_to("/b")
            for _ in range(100):
                await node.do("wait")
            assert node.directory == "b" and to_rename(node.logs)
            node.move_to("/a")
            await node.crash(power=True)

    run(main())


def test_a_move_takes_the_time_that_its_rate_gives_it_until_that_is_raised() -> None:
    async def main() -> None:
        node = await filled(MovingNode(1, rate=1000), 30)
        size, loop = node.log.segments.size, asyncio.get_running_loop()
        assert size > 20_000
        began = loop.time()
        node.move_to("/b")
        await asyncio.sleep(10)
        future = node.logs.open.future(TOPIC_ID, 0)
        assert future is not None and 5_000 < future.segments.size < 14_000, future
        node.limit(1_000_000)
        await node.finished()
        assert loop.time() - began < 15
        assert node.directory == "b"

    run(main())


@pytest.mark.parametrize("seed", range(3, 9))
def test_a_log_that_was_never_flushed_is_on_the_disk_before_a_copy_of_it_is(seed: int) -> None:
    """A power loss would lose the log with the log start that DeleteRecords has set, and leave the records copied before."""

    async def main() -> None:
        node = await filled(MovingNode(seed, rate=1000), 10)
        end = node.log.log_end_offset
        node.move_to("/b")
        await asyncio.sleep(1)
        future = node.logs.open.future(TOPIC_ID, 0)
        assert future is not None and 0 < future.log_end_offset < end
        await node.do("append")
        await node.do("elect")
        start = delete_records(node.log, end)
        assert start == end and not node.logs.checkpoints.write_log_starts()
        await node.crash(power=True)
        assert node.directory == "a" and node.log.log_start_offset == end

    run(main())


def test_a_full_disk_ends_the_move_and_deletes_the_copy() -> None:
    async def main() -> None:
        node = await filled(MovingNode(1), 40)
        node.host.disk.room_bytes = node.host.disk.used_bytes() + 3000
        node.move_to("/b")
        await node.finished()
        assert node.directory == "a" and not node.moves._moves
        node.repair()
        await node.do("append")
        node.check()
        node.move_to("/b")
        await node.finished()
        assert node.directory == "b"

    run(main())


def test_a_damaged_log_is_not_moved_and_its_copy_is_deleted() -> None:
    async def main() -> None:
        node = await filled(MovingNode(1), 20)
        await node.stop()
        path = next(path for path in sorted(node.host.disk.tree("/a/t-0")) if path.endswith(".log"))
        node.host.disk._must(path).data[80] ^= 1
        node.move_to("/b")
        await asyncio.sleep(5)
        assert node.directory == "a" and not node.moves._moves and not node.logs.open.futures()
        assert not node.logs.open.offline_directories

    run(main())


@pytest.mark.parametrize("failing", ["/a", "/b"])
def test_a_directory_that_fails_during_a_move_ends_it_and_the_log_stays_where_it_is(failing: str) -> None:
    async def main() -> None:
        node = await filled(MovingNode(1, rate=5000), 40)
        node.move_to("/b")
        await asyncio.sleep(2)
        assert node.logs.open.future(TOPIC_ID, 0) is not None
        directory = next(directory for directory in node.logs.directories if directory.path == failing)
        node.logs.open.directory_failed(directory, StorageFailure(failing, "simulated"))
        node.moves.directory_failed(directory)
        await asyncio.sleep(30)
        assert node.directory == "a" and not node.moves._moves
        assert (node.logs.open.future(TOPIC_ID, 0) is None) == (failing == "/b")
        node.check()
        await node.crash(power=False)
        await node.finished()
        assert node.directory == "b", "both directories are back, and the move goes on"

    run(main())


def test_a_producers_retry_is_a_duplicate_even_if_its_first_attempt_was_never_copied() -> None:
    """The producer states do not depend on the remaining batches alone: retention and DeleteRecords remove some batches."""

    async def main() -> None:
        node = await filled(MovingNode(1, LogConfig(segment_bytes=2000, file_delete_delay_ms=0, retention_ms=-1)), 10)
        node.log.roll(node.world.clock.wall_ms())
        delete_records(node.log, node.log.log_end_offset)
        retain(node.logs, node.world.clock.wall_ms())
        node.move_to("/b")
        await node.finished()
        last = node.batches[-1]
        retried = node._build(last.sequence, last.fill, 10)
        assert node.partition.append(retried, 1, node.world.clock.wall_ms()).duplicate

    run(main())


def test_a_busy_log_that_is_flushed_with_each_record_moves_nevertheless() -> None:
    async def main() -> None:
        node = await filled(
            MovingNode(1, LogConfig(segment_bytes=20_000, flush_messages=1, producer_id_expiration_ms=NEVER))
        )
        node.move_to("/b")
        for _ in range(300):
            await node.do("append")
            await asyncio.sleep(0.002)
        assert node.directory == "b"
        await node.finished()
        await node.crash(power=True)

    run(main())
