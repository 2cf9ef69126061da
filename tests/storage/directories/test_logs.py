"""All logs of a node: found again after stops and kills, created, deleted, set aside; directories that fail or lie."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.storage.checkpoint import RECOVERY_POINT, REPLICATION, read_offsets, write_offsets
from ottla.storage.cleaner.cleaner import Cleaner
from ottla.storage.directories import logs as logs_module
from ottla.storage.directories.future_logs import PREFERRED_MAX
from ottla.storage.directories.log_dirs import (
    MetaProperties,
    open_log_dirs,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import RETRY_MS
from ottla.storage.errors import (
    CorruptFile,
    InconsistentLogDirectory,
    LogDirectoryLocked,
    LogDirectoryOffline,
    StorageFailure,
)
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.partition_dir import NAME_BYTES_MAX, name_with_suffix, partition_of, read_topic_id
from ottla.storage.log.retention import delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log_config import LogConfig
from tests.storage.chores import remove_deleted, rename_deleted, retain
from tests.storage.logs_for_tests import (
    NOW_MS,
    SMALL,
    append,
    batch,
    descriptors_below,
    max_timestamp,
    offset_for_timestamp,
    read_all,
)

FILES = OsFiles()
A, B = bytes([1]) * 16, bytes([2]) * 16


def formatted(path: Path, *, node_id: int = 1, cluster: str = "cluster", directory_id: bytes = A) -> str:
    write_meta_properties(FILES, str(path), MetaProperties(cluster, node_id, directory_id))
    return str(path)


def opened(*paths: Path, mappings: Mappings | None = None) -> Logs:
    directories = open_log_dirs(FILES, [str(path) for path in paths], None, 1)
    logs = Logs(FILES, directories, Random(3), mappings)
    logs.open_all(lambda topic, topic_id: SMALL, NOW_MS)
    return logs


def killed(logs: Logs) -> None:
    """Release only the locks, as the kernel does for a dead process."""
    for directory in logs.directories:
        assert directory.lock is not None
        directory.lock.release()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    formatted(tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("clean", [True, False])
def test_every_log_is_found_again(node: Path, clean: bool) -> None:
    logs = opened(node)
    for partition in range(4):
        log = logs.create("orders", partition, A, SMALL)
        for i in range(30 + partition):
            append(log, batch(fill=i))
        log.advance_high_watermark(20)
    content = {log.partition: read_all(log) for log in logs.open}
    logs.checkpoints.write_high_watermarks()
    logs.checkpoints.write_recovery_points()
    logs.close_all(broker_epoch=12) if clean else killed(logs)
    again = opened(node)
    assert again.previous_broker_epoch == (12 if clean else -1)
    assert {log.partition: read_all(log) for log in again.open} == content
    assert [again.open.get(A, p).high_watermark for p in range(4)] == [20] * 4
    assert again.open.by_name("orders", 2) is again.open.get(A, 2)


def test_the_files_of_a_clean_stop_are_kafkas(node: Path) -> None:
    logs = opened(node)
    append(logs.create("orders", 0, A, SMALL), batch())
    logs.close_all(broker_epoch=5)
    assert (node / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":5}'
    assert (node / RECOVERY_POINT).read_text() == "0\n1\norders 0 1\n"
    assert (node / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (node / "orders-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_to_str(A)}\n"
    assert (node / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_crash_while_opening_after_a_clean_stop_is_no_clean_stop(node: Path) -> None:
    opened(node).close_all()
    first = opened(node)
    assert not (node / ".kafka_cleanshutdown").exists()
    killed(first)
    assert opened(node).previous_broker_epoch == -1


def test_the_log_start_offset_survives_a_kill(node: Path) -> None:
    logs = opened(node)
    log = logs.create("orders", 0, A, SMALL)
    for i in range(5):
        append(log, batch(fill=i))
    log.advance_high_watermark(5)
    delete_records(log, 3)
    logs.checkpoints.write_recovery_points()
    killed(logs)
    assert opened(node).open.get(A, 0).log_start_offset == 3


def test_a_flush_that_still_waited_for_a_worker_when_its_log_was_deleted_does_nothing(node: Path) -> None:
    logs = opened(node)
    log = logs.create("orders", 0, A, SMALL)
    append(log, batch())
    logs.delete(A, 0, NOW_MS)
    log.flush(NOW_MS)
    assert log.recovery_point == 0 and not logs.open.offline_directories


def test_a_deleted_log_goes_at_once_and_its_files_after_the_delay(node: Path) -> None:
    logs = opened(node)
    config = LogConfig(file_delete_delay_ms=1000)
    append(logs.create("orders", 0, A, config), batch())
    logs.delete(A, 0, NOW_MS)
    assert logs.open.get(A, 0) is None
    rename_deleted(logs)
    [left] = [name for name in os.listdir(node) if "orders" in name]
    assert left.startswith("orders-0.") and left.endswith("-delete") and len(left) == len("orders-0.") + 32 + 7
    assert remove_deleted(logs, NOW_MS + 999) == 0
    assert remove_deleted(logs, NOW_MS + 1000) == 1
    assert not (node / left).exists()


def test_a_file_that_cannot_be_unlinked_keeps_no_file_of_another_disk(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel mounted a disk read-only, and that stopped the removal on all disks, each five minutes at the same path."""
    logs = opened(node)
    for topic, name in ((A, "orders"), (B, "payments")):
        append(logs.create(name, 0, topic, LogConfig(file_delete_delay_ms=0)), batch())
        logs.delete(topic, 0, NOW_MS)
    rename_deleted(logs)
    remove_tree = logs.files.remove_tree

    def refuses(path: str) -> None:
        if "orders" in path:
            raise StorageFailure(path, OSError(errno.EROFS, "read-only file system"))
        remove_tree(path)

    monkeypatch.setattr(logs.files, "remove_tree", refuses)
    assert remove_deleted(logs, NOW_MS, limit=1) == 1
    assert remove_deleted(logs, NOW_MS, limit=1) == 1
    assert [name.split("-")[0] for name in os.listdir(node) if name.endswith("-delete")] == ["orders"]
    assert remove_deleted(logs, NOW_MS + RETRY_MS - 1) == 0, "it waits for the next attempt"
    monkeypatch.undo()
    assert remove_deleted(logs, NOW_MS + RETRY_MS) == 1
    assert not [name for name in os.listdir(node) if name.endswith("-delete")]


def test_a_deletion_cut_short_by_a_stop_is_finished_at_the_next_start(node: Path) -> None:
    logs = opened(node)
    append(logs.create("orders", 0, A, LogConfig()), batch())
    logs.delete(A, 0, NOW_MS)
    rename_deleted(logs)
    killed(logs)
    again = opened(node)
    assert len(again.open) == 0
    assert remove_deleted(again, NOW_MS) == 1


def test_a_topic_created_again_under_its_name_starts_empty(node: Path) -> None:
    logs = opened(node)
    append(logs.create("orders", 0, A, SMALL), batch())
    fresh = logs.create("orders", 0, B, SMALL)
    assert (fresh.log_end_offset, logs.open.get(A, 0), logs.open.by_name("orders", 0)) == (0, None, fresh)
    append(fresh, batch())
    assert read_topic_id(FILES, fresh.directory) == B
    assert [name for name in os.listdir(node) if name.endswith("-stray")]


def test_an_epoch_is_in_the_file_with_the_first_flush_of_its_records_and_not_before(node: Path) -> None:
    """A broker that takes over 3,000 partitions must not write 3,000 files in one turn of its loop, nor with their records."""
    logs = opened(node)
    log = logs.create("orders", 0, A, LogConfig())
    append(log, batch(), epoch=3)
    file = Path(log.directory) / "leader-epoch-checkpoint"
    log.flush()
    for epoch in (4, 5):
        log.epochs.begin(epoch, log.log_end_offset)
        assert log.end_offset_for_epoch(epoch) == (epoch, log.log_end_offset)
    append(log, batch(), epoch=5)
    assert file.read_text() == "0\n1\n3 0\n"
    log.flush()
    assert file.read_text() == "0\n2\n3 0\n5 1\n"
    written = file.stat().st_ino
    append(log, batch(), epoch=5)
    log.flush()
    assert file.stat().st_ino == written, "written again though it was up to date"


def test_a_first_record_makes_two_files_and_a_flush_the_others(node: Path) -> None:
    """Each file that is made takes a millisecond of the loop on a busy file system."""
    logs = opened(node)
    log = logs.create("orders", 0, A, LogConfig())
    append(log, batch(), epoch=3)
    first = {"partition.metadata", "00000000000000000000.log"}
    assert set(os.listdir(log.directory)) == first
    killed(logs)
    logs = opened(node)
    again = logs.open.by_name("orders", 0)
    assert again is not None
    assert (again.log_end_offset, again.epochs.entries) == (1, [(3, 0)])
    append(again, batch(), epoch=4)
    assert set(os.listdir(log.directory)) == first
    again.flush()
    kafkas = {"00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"}
    assert set(os.listdir(log.directory)) == first | kafkas
    killed(logs)
    assert opened(node).open.get(A, 0).epochs.entries == [(3, 0), (4, 1)]


def test_a_log_has_no_files_before_its_first_record(node: Path) -> None:
    logs = opened(node)
    log, doomed = (
        logs.create("orders", partition, A, LogConfig(cleanup_policy=("compact", "delete"))) for partition in (0, 1)
    )
    log.epochs.assign(3, 0)
    assert not list(Cleaner(logs).run(NOW_MS))
    retain(logs, NOW_MS)
    for each in logs.open:
        each.flush(NOW_MS)
    assert read_all(log) == b""
    assert (offset_for_timestamp(log, 0), max_timestamp(log), truncate_to(log, 0)) == (None, None, False)
    logs.delete(A, 1, NOW_MS)
    assert not doomed.partition_dir.exists and not [name for name in os.listdir(node) if "orders" in name]
    append(log, batch(), epoch=3)
    logs.close_all()
    again = opened(node).open.get(A, 0)
    assert again is not None
    assert (again.log_end_offset, again.epochs.entries) == (1, [(3, 0)])


def test_a_follower_whose_leader_begins_later_has_files_from_there_on(node: Path) -> None:
    logs = opened(node)
    truncate_fully_and_start_at(logs.create("orders", 0, A, SMALL), 7)
    logs.close_all()
    again = opened(node).open.get(A, 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (7, 7)


def test_a_clean_stop_without_a_record_is_a_clean_stop(node: Path) -> None:
    logs = opened(node)
    logs.create("orders", 0, A, SMALL)
    logs.close_all(broker_epoch=5)
    assert (node / ".kafka_cleanshutdown").exists()
    assert len(opened(node).open) == 0


def test_new_logs_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    formatted(tmp_path / "a", directory_id=A)
    formatted(tmp_path / "b", directory_id=B)
    logs = opened(tmp_path / "a", tmp_path / "b")
    for partition in range(6):
        logs.create("orders", partition, A, SMALL)
    assert [len(logs.open.in_directory(directory)) for directory in logs.directories] == [3, 3]
    log = logs.create("other", 0, B, SMALL, directory_id=B)
    assert logs.open.directory_of(log).directory_id == B


def test_a_failed_directory_takes_its_logs_down_and_no_others(tmp_path: Path) -> None:
    formatted(tmp_path / "a", directory_id=A)
    formatted(tmp_path / "b", directory_id=B)
    logs = opened(tmp_path / "a", tmp_path / "b")
    first = logs.create("orders", 0, A, SMALL, directory_id=A)
    beside = logs.create("orders", 1, A, SMALL, directory_id=A)
    other = logs.create("orders", 2, A, SMALL, directory_id=B)
    append(beside, batch())
    failed: list[str] = []
    logs.open.on_directory_failed = lambda directory: failed.append(directory.path)
    first.fail(StorageFailure("x", "broken"))
    assert failed == [str(tmp_path / "a")] == [directory.path for directory in logs.open.offline_directories]
    for log in (first, beside):
        with pytest.raises(LogDirectoryOffline):
            append(log, batch())
    assert beside.read(0, max_bytes=100).records
    assert append(other, batch()) == 0
    with pytest.raises(LogDirectoryOffline):
        logs.create("orders", 3, A, SMALL, directory_id=A)
    logs.close_all()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_log_that_may_be_in_an_unreadable_directory_is_not_created_in_another(tmp_path: Path) -> None:
    formatted(tmp_path / "a", directory_id=A)
    (tmp_path / "b").write_text("its disk is gone, and with it the directory's id")
    logs = opened(tmp_path / "a", tmp_path / "b")
    with pytest.raises(LogDirectoryOffline):
        logs.create("orders", 0, A, SMALL, directory_id=B)
    # A new replica has no directory yet, and one that is known to be elsewhere has its own.
    assert logs.open.directory_of(logs.create("orders", 1, A, SMALL, directory_id=bytes(16))).path == str(
        tmp_path / "a"
    )
    assert logs.open.directory_of(logs.create("orders", 2, A, SMALL, directory_id=A)).path == str(tmp_path / "a")


def test_a_log_of_a_removed_directory_is_created_again_when_all_others_work(tmp_path: Path) -> None:
    formatted(tmp_path / "a", directory_id=A)
    logs = opened(tmp_path / "a")
    assert logs.open.directory_of(logs.create("orders", 0, A, SMALL, directory_id=B)).path == str(tmp_path / "a")


def test_more_logs_than_may_be_mapped_all_work(node: Path) -> None:
    mappings = Mappings(limit=5)
    logs = opened(node, mappings=mappings)
    for partition in range(20):
        logs.create("orders", partition, A, SMALL)
    for round_number in range(3):
        for log in logs.open:
            append(log, batch(fill=round_number))
            assert log.read(0, max_bytes=10).next_offset == 1
    assert 0 < len(mappings._open) <= 5
    assert {log.log_end_offset for log in logs.open} == {3}
    killed(logs)
    assert {log.log_end_offset for log in opened(node).open} == {3}


def test_open_logs_hold_no_file_descriptors(node: Path) -> None:
    logs = opened(node)
    before = (
        descriptors_below(node)
        if os.path.isdir("/proc/self/fd")
        else pytest.skip("descriptors are counted in /proc, which only Linux has")
    )
    for partition in range(50):
        append(logs.create("orders", partition, A, SMALL), batch())
    assert descriptors_below(node) <= before + 1


@pytest.mark.parametrize("text", ["", "x", "0\n1\n", "0\n2\na 0 1\n", "1\n0\n", "0\n1\na b c\n", "0\n1\na 0\n"])
def test_a_damaged_checkpoint_costs_time_but_no_records(node: Path, text: str) -> None:
    logs = opened(node)
    append(logs.create("orders", 0, A, SMALL), batch())
    killed(logs)
    for name in (RECOVERY_POINT, REPLICATION, "log-start-offset-checkpoint"):
        (node / name).write_text(text)
    with pytest.raises(CorruptFile):
        read_offsets(FILES, str(node / RECOVERY_POINT))
    assert opened(node).open.get(A, 0).log_end_offset == 1


def test_checkpoints_come_back_as_written(tmp_path: Path) -> None:
    offsets = {("a.b-c", 0): 5, ("a", 12): 2**40}
    write_offsets(FILES, str(tmp_path / "x"), offsets)
    assert read_offsets(FILES, str(tmp_path / "x")) == offsets
    assert (tmp_path / "x").read_text() == f"0\n2\na.b-c 0 5\na 12 {2**40}\n"


# Log directories


def test_meta_properties_come_back_as_written(tmp_path: Path) -> None:
    path = formatted(tmp_path / "data", node_id=7)
    assert read_meta_properties(FILES, path) == MetaProperties("cluster", 7, A)


def test_meta_properties_as_java_writes_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 09:00:00 UTC 2026\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\ndirectory.id=AQEBAQEBAQEBAQEBAQEBAQ\nnode.id=3\nversion=1\n"
    )
    assert read_meta_properties(FILES, str(tmp_path)) == MetaProperties("q1Sh-9_ISia_zwGINzRvyQ", 3, A)


@pytest.mark.parametrize(
    "text",
    [
        "version=1\n",
        "version=0\nbroker.id=1\n",
        "version=1\ncluster.id=x\nnode.id=one\n",
        "nonsense",
        "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n",
    ],
)
def test_damaged_meta_properties_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(InconsistentLogDirectory, match=r"meta\.properties"):
        open_log_dirs(FILES, [str(tmp_path)], None, 1)


def test_directories_of_another_node_or_cluster_or_twice_the_same_are_refused(tmp_path: Path) -> None:
    mine = formatted(tmp_path / "mine")
    with pytest.raises(InconsistentLogDirectory, match="belongs to node 1"):
        open_log_dirs(FILES, [mine], None, 2)
    with pytest.raises(InconsistentLogDirectory, match="different clusters"):
        open_log_dirs(FILES, [mine], "another", 1)
    twin = formatted(tmp_path / "twin")
    with pytest.raises(InconsistentLogDirectory, match="copy"):
        open_log_dirs(FILES, [mine, twin], None, 1)
    with pytest.raises(InconsistentLogDirectory, match="format it first"):
        open_log_dirs(FILES, [str(tmp_path / "bare")], None, 1)


def test_a_directory_in_use_by_another_process_is_refused(node: Path) -> None:
    holder = f"""
import sys; sys.path.insert(0, {os.getcwd()!r})
from ottla.storage.files import OsFiles
from ottla.storage.directories.future_logs import PREFERRED_MAX
OsFiles().lock({str(node / ".lock")!r}); print("held", flush=True); sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(LogDirectoryLocked):
            open_log_dirs(FILES, [str(node)], None, 1)
        process.stdin.close()
    assert open_log_dirs(FILES, [str(node)], None, 1)[0].online


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b.c_d-17", ("a-b.c_d", 17)),
        ("x.0123-delete-3", ("x.0123-delete", 3)),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
        ("orders-0.0123456789abcdef0123456789abcdef-stray", None),
        ("orders", None),
        ("-1", None),
        ("lost+found", None),
        ("orders-x", None),
        (".lock", None),
    ],
)
def test_which_directories_are_partitions(name: str, found: tuple[str, int] | None) -> None:
    assert partition_of(name) == found


def test_long_topic_names_are_cut_for_the_file_system() -> None:
    name = name_with_suffix("t" * 249, 12345, A, "-delete")
    assert len(name) == NAME_BYTES_MAX == 255 and name.endswith(f"-12345.{A.hex()}-delete")


def test_ids_are_url_safe_base64() -> None:
    assert uuid_from_str(uuid_to_str(A)) == A
    with pytest.raises(ValueError, match="not a UUID"):
        uuid_from_str("abc")


def test_a_directory_that_has_vanished_is_offline_and_not_a_mistake_of_ours(tmp_path: Path) -> None:
    files = OsFiles()
    (tmp_path / "there").mkdir()
    for write in (
        lambda: files.create(f"{tmp_path}/gone/file"),
        lambda: files.pwrite(f"{tmp_path}/gone/file", 0, b"x"),
        lambda: files.write_atomic(f"{tmp_path}/gone/file", b"x"),
        lambda: files.rename(f"{tmp_path}/gone/file", f"{tmp_path}/there/file"),
    ):
        with pytest.raises(StorageFailure):
            write()
    assert files.read(f"{tmp_path}/gone/file") is None, "what is not there is an answer"


def test_what_needs_no_flush_is_looked_at_again_after_the_next_append_or_another_setting(node: Path) -> None:
    logs = opened(node)
    log = logs.create("orders", 0, A, LogConfig(flush_messages=2))
    append(log, batch())
    assert logs.flush_due(NOW_MS) == logs.flush_due(NOW_MS) == []
    append(log, batch())
    assert logs.flush_due(NOW_MS) == logs.flush_due(NOW_MS) == [log]
    log.flush(NOW_MS)
    append(log, batch())
    assert logs.flush_due(NOW_MS) == []
    log.update_config(LogConfig(flush_messages=1))
    assert logs.flush_due(NOW_MS) == [log]


def test_a_checkpoint_that_would_say_the_same_is_not_written_again(node: Path) -> None:
    logs = opened(node)
    log = logs.create("orders", 0, A, SMALL)
    append(log, batch())
    logs.checkpoints.write_high_watermarks()
    written = (node / REPLICATION).stat().st_mtime_ns, (node / REPLICATION).stat().st_ino
    logs.checkpoints.write_high_watermarks()
    assert written == ((node / REPLICATION).stat().st_mtime_ns, (node / REPLICATION).stat().st_ino)
    log.advance_high_watermark(1)
    logs.checkpoints.write_high_watermarks()
    assert (node / REPLICATION).read_text() == "0\n1\norders 0 1\n"


def test_a_checkpoint_with_the_same_offsets_names_the_partitions_that_there_are_now(node: Path) -> None:
    logs = opened(node)
    logs.create("orders", 0, A, SMALL)
    logs.checkpoints.write_high_watermarks()
    logs.delete(A, 0)
    logs.create("orders", 1, A, SMALL)
    logs.checkpoints.write_high_watermarks()
    assert (node / REPLICATION).read_text() == "0\n1\norders 1 0\n"


def test_logs_that_are_still_empty_after_a_restart_cost_no_checkpoint_each(node: Path) -> None:
    logs = opened(node)
    for partition in range(3):
        logs.create("orders", partition, A, SMALL)
    logs.checkpoints.write_high_watermarks()
    written = (node / REPLICATION).stat().st_ino
    logs = opened(node)  # after a crash: nothing was written, so no log is found
    for partition in range(3):
        logs.create("orders", partition, A, SMALL)
    assert (node / REPLICATION).stat().st_ino == written, "with 10,000 partitions each rewrite names them all"


def test_a_cordoned_directory_gets_no_new_log_while_another_can_take_it(tmp_path: Path) -> None:
    formatted(tmp_path / "a", directory_id=A)
    formatted(tmp_path / "b", directory_id=B)
    logs = opened(tmp_path / "a", tmp_path / "b")
    logs.directories[0].cordoned = True
    for partition in range(3):
        assert logs.open.directory_of(logs.create("orders", partition, A, SMALL)).directory_id == B
    logs.directories[1].cordoned = True
    assert logs.create("orders", 3, A, SMALL), "the controller has placed it here all the same"


def test_a_log_whose_restart_after_a_crash_would_take_too_long_is_flushed_without_a_setting(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_module, "RECOVERY_BYTES_MAX", 3 * len(batch()))
    logs = opened(node)
    log = logs.create("orders", 0, A, LogConfig())
    append(log, batch())
    append(log, batch())
    assert logs.flush_due(NOW_MS) == []
    append(log, batch())
    assert logs.flush_due(NOW_MS) == [log]
    log.flush(NOW_MS)
    append(log, batch())
    assert logs.flush_due(NOW_MS) == []


def test_the_oldest_of_too_many_preferred_directories_is_forgotten(tmp_path: Path) -> None:
    formatted(tmp_path / "a")
    formatted(tmp_path / "b", directory_id=B)
    logs = opened(tmp_path / "a", tmp_path / "b")
    for partition in range(PREFERRED_MAX + 1):
        logs.futures.prefer("later", partition, logs.directories[1])
    assert logs.open.directory_of(logs.create("later", 1, A, SMALL, directory_id=A)).directory_id == B
    assert logs.open.directory_of(logs.create("later", 0, A, SMALL, directory_id=A)).directory_id == A
