"""The files that a node reads when it starts: each small file by its reader, from a disk in memory.

The first byte of an input says which file it is. The content is written again and read once more, if the product writes such a
file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from ottla.controller.raft.batches import data_batch
from ottla.controller.raft.election_store import FILE as QUORUM_STATE
from ottla.controller.raft.election_store import ElectionStore
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import Batch
from ottla.controller.raft.metadata_log import DIRECTORY, MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import (
    BOOTSTRAP_FILE,
    Snapshots,
    SnapshotWriter,
    file_name,
    read_bootstrap,
    write_bootstrap,
)
from ottla.controller.raft.voters import DYNAMIC_VOTERS, STATIC_VOTERS
from ottla.protocol.internal_topics.control_messages import ProducerEntry, ProducerSnapshot
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, NoOpRecord, encode_record
from ottla.protocol.records.batch import HEADER_BYTES, crc32c
from ottla.protocol.work import do_now
from ottla.storage import checkpoint
from ottla.storage.directories.log_dirs import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.epochs import FILE as EPOCHS
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile, InconsistentLogDirectory
from ottla.storage.log.partition_dir import PARTITION_METADATA, read_topic_id, write_topic_id
from ottla.storage.log_files import AbortedTxn
from ottla.storage.producers import producer_snapshots
from ottla.storage.segment import index as index_files
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from ottla.storage.segment.txn_index import TransactionIndex
from tests.controller.raft.cluster import dynamic_voters, static_voters
from tests.fuzz.batches import stamp
from tests.fuzz.target import Target, equal
from tests.protocol.catalog import encode_versioned
from tests.sim.disk import SimDisk

HERE = "/d"
SNAPSHOT = OffsetAndEpoch(10, 1)
LOG_BYTES = 1 << 20
RAFT = RaftConfig(1, bytes(16), "c", (), static_voters=static_voters(1))


def disk_with(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk(Random(0), lambda: 0)
    disk.make_dirs(HERE)
    for name, data in files.items():
        disk.write_atomic(f"{HERE}/{name}", data, sync=False)
    return disk


class File(NamedTuple):
    name: str
    read: Callable[[SimDisk], object]
    examples: Callable[[SimDisk], object]  # writes one such file


def _offset_index(disk: SimDisk) -> None:
    index = OffsetIndex(f"{HERE}/0.index", 100, 4096)
    searched = [_search(index.floor_in_file, disk, offset) for offset in QUESTIONS]
    at_positions = [
        _search(index.floor_position_in_file, disk, place, log_bytes)
        for place in QUESTIONS
        for log_bytes in (1, LOG_BYTES)
    ]
    index.load(disk, LOG_BYTES)
    equal(searched, [index.floor(offset) for offset in QUESTIONS], "what is found in the file of the offset index")
    expected = [index.floor_position(place) for place in QUESTIONS for _ in (1, LOG_BYTES)]
    equal(at_positions, expected, "what is found by its position in the file")
    assert index.floor(150)[1] < LOG_BYTES and index.floor_position(777)[1] <= 777
    again = OffsetIndex(f"{HERE}/1.index", 100, 4096)
    for offset, position in zip(index.offsets, index.values, strict=True):
        again.append(offset + 100, position)
    again.save(disk)
    equal(disk.read(again.path) or b"", disk.read(index.path), "the offset index written again")
    index.truncate_to(index.last_offset)
    index.save(disk)
    index.load(disk, LOG_BYTES)


def _time_index(disk: SimDisk) -> None:
    index = TimeIndex(f"{HERE}/0.timeindex", 100, 4096)
    index.last_in_file(disk)
    searched = [_search(index.floor_in_file, disk, timestamp) for timestamp in QUESTIONS]
    index.load(disk, 100 + RELATIVE_OFFSET_MAX)
    equal(searched, [index.floor(timestamp) for timestamp in QUESTIONS], "what is found in the file of the time index")
    again = TimeIndex(f"{HERE}/1.timeindex", 100, 4096)
    for timestamp, offset in zip(index.values, index.offsets, strict=True):
        again.maybe_append(timestamp, offset + 100)
    again.save(disk)
    equal(disk.read(again.path) or b"", b"".join(_TIME.pack(*each) for each in _times(again)), "the time index")


#: Questions to the indexes: offsets above the base offset, positions, timestamps.
QUESTIONS = (101, 110, 111, 777, 1500, 9500, LOG_BYTES, 1 << 33, 1 << 62)
BLOCK_BYTES = 24


def _search(search: Callable[..., tuple[int, int]], *question: object) -> tuple[int, int] | CorruptFile:
    """Search in blocks of two or three entries, so that a short file has many of them. A file in disorder may lead anywhere."""
    whole, index_files.BLOCK_BYTES = index_files.BLOCK_BYTES, BLOCK_BYTES
    try:
        return search(*question)
    except CorruptFile as damage:
        return damage
    finally:
        index_files.BLOCK_BYTES = whole


_TIME = struct.Struct(">qi")


def _times(index: TimeIndex) -> Iterator[tuple[int, int]]:
    return zip(index.values, index.offsets, strict=True)


def _txn_index(disk: SimDisk) -> None:
    index = TransactionIndex(f"{HERE}/0.txnindex")
    entries = list(index.entries(disk))
    index.collect(disk, 0, 1 << 62, [])
    index.replace(disk, entries)
    equal(TransactionIndex(index.path).entries(disk), entries, "the transaction index read again")


def _producers(disk: SimDisk) -> None:
    path = f"{HERE}/5.snapshot"
    states = producer_snapshots.decode(path, disk.read(path) or b"")
    written = producer_snapshots.encode(states)
    equal(producer_snapshots.encode(producer_snapshots.decode(path, written)), written, "producers read again")


def _epochs(disk: SimDisk) -> None:
    epochs = LeaderEpochs(disk, f"{HERE}/{EPOCHS}")
    epochs.load()
    entries = list(epochs.entries)
    epochs.end_offset_for(3, 1 << 40)
    epochs.epoch_of(7)
    checkpoint.write_lines(disk, epochs.path, (f"{epoch} {start}" for epoch, start in entries))
    again = LeaderEpochs(disk, epochs.path)
    again.load()
    equal(again.entries, entries, "epochs read again")
    again.truncate_from_start(5)
    again.truncate_from_end(9)


def _offsets(disk: SimDisk) -> None:
    path = f"{HERE}/{checkpoint.RECOVERY_POINT}"
    offsets = checkpoint.read_offsets(disk, path)
    checkpoint.write_offsets(disk, path, offsets)
    equal(checkpoint.read_offsets(disk, path), offsets, "the checkpoint read again")


def _topic_id(disk: SimDisk) -> None:
    topic_id = read_topic_id(disk, HERE)
    assert topic_id is not None
    write_topic_id(disk, HERE, topic_id)
    equal(read_topic_id(disk, HERE), topic_id, "the topic id read again")


def _meta(disk: SimDisk) -> None:
    meta = read_meta_properties(disk, HERE)
    assert meta is not None
    write_meta_properties(disk, HERE, meta)
    equal(read_meta_properties(disk, HERE), meta, "meta.properties read again")


def _quorum_state(disk: SimDisk) -> None:
    store = ElectionStore(disk, HERE)
    election = store.read()
    assert election is not None
    store.write(election, DYNAMIC_VOTERS, ())
    equal(store.read(), election, "quorum-state read again")


def _write_quorum_state(disk: SimDisk) -> None:
    text = '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":2,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    disk.write_atomic(f"{HERE}/{QUORUM_STATE}", (text + '"data_version":0}').encode())


def _write_offset_index(disk: SimDisk) -> None:
    disk.write_atomic(
        f"{HERE}/0.index", struct.pack(">12I", 10, 4000, 20, 9000, 21, 9500, 30, 9600, 40, 9700, 1400, 99000)
    )


def _write_time_index(disk: SimDisk) -> None:
    disk.write_atomic(f"{HERE}/0.timeindex", struct.pack(">qiqiqiqi", 1000, 3, 2000, 9, 3000, 9, 1 << 33, 20))


def _write_producers(disk: SimDisk) -> None:
    entry = ProducerEntry(7, 1, 5, 100, 5, 1000, 2, 95)
    data = bytearray(encode_versioned(ProducerSnapshot(0, [entry, ProducerEntry(8, 0, -1, -1, 0, 9, -1, -1)]), 1))
    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    disk.write_atomic(f"{HERE}/5.snapshot", bytes(data))


FILES = (
    File("0.index", _offset_index, _write_offset_index),
    File("0.timeindex", _time_index, _write_time_index),
    File(
        "0.txnindex",
        _txn_index,
        lambda disk: TransactionIndex(f"{HERE}/0.txnindex").replace(
            disk, [AbortedTxn(7, 3, 9, 3), AbortedTxn(8, 4, 12, 10)]
        ),
    ),
    File("5.snapshot", _producers, _write_producers),
    File(EPOCHS, _epochs, lambda disk: checkpoint.write_lines(disk, f"{HERE}/{EPOCHS}", ["0 0", "3 10", "4 10"])),
    File(
        checkpoint.RECOVERY_POINT,
        _offsets,
        lambda disk: checkpoint.write_offsets(disk, f"{HERE}/{checkpoint.RECOVERY_POINT}", {("t", 0): 5, ("u", 1): 77}),
    ),
    File(PARTITION_METADATA, _topic_id, lambda disk: write_topic_id(disk, HERE, bytes(range(16)))),
    File(
        META_PROPERTIES, _meta, lambda disk: write_meta_properties(disk, HERE, MetaProperties("c", 1, bytes(range(16))))
    ),
    File(QUORUM_STATE, _quorum_state, _write_quorum_state),
)


def small(data: bytes) -> None:
    if not data:
        return
    file = FILES[data[0] % len(FILES)]
    content = data[1:]
    if file.read is _producers and data[0] >= 128 and len(content) >= 6:
        content = _with_crc(content)
    file.read(disk_with({file.name: content}))


def _with_crc(content: bytes) -> bytes:
    return content[:2] + struct.pack(">I", crc32c(content[6:])) + content[6:]


def small_seeds() -> Iterator[bytes]:
    for place, file in enumerate(FILES):
        disk = disk_with({})
        file.examples(disk)
        content = disk.read(f"{HERE}/{file.name}") or b""
        yield bytes((place,)) + content
        if file.read is _producers:
            yield bytes((place + len(FILES) * (128 // len(FILES) + 1),)) + content


def snapshot(data: bytes) -> None:
    """A snapshot of the metadata, and bootstrap.checkpoint, which has the same form.

    bit 0    the CRCs are put right
    bit 1    it is bootstrap.checkpoint
    bit 2    it is beside a metadata log that is opened: a damaged one does not cost that log
    """
    if not data:
        return
    content = bytearray(data[1:])
    if data[0] & 1:
        stamp_all(content)
    if data[0] & 2:
        read_bootstrap(disk_with({BOOTSTRAP_FILE: bytes(content)}), HERE)
        return
    if data[0] & 4:
        _beside_a_log(bytes(content))
        return
    disk = disk_with({file_name(SNAPSHOT) + ".part": bytes(content)})
    snapshots = Snapshots(disk, HERE)
    control = do_now(snapshots.checking(SNAPSHOT))
    snapshots.finish(SNAPSHOT)
    equal(snapshots.open(), [SNAPSHOT], "snapshots")
    equal(snapshots.reader(SNAPSHOT).load_control(), control, "control records read again")
    for batch in snapshots.reader(SNAPSHOT):
        assert batch.records is not None


def _beside_a_log(content: bytes) -> None:
    disk = disk_with({})
    log = MetadataLog(disk, HERE, RAFT, 0)
    for offset in range(9):
        log.append(Batch(offset, offset, 1, [b"no-op"]), 1)
    log.flush(1)
    disk.write_atomic(f"{HERE}/{DIRECTORY}/{file_name(SNAPSHOT)}", content, sync=False)
    try:
        again = MetadataLog(disk, HERE, RAFT, 0)
    except CorruptFile:
        again = None
    if again is None or again.state.latest_snapshot is None:
        disk.remove(f"{HERE}/{DIRECTORY}/{file_name(SNAPSHOT)}")
        equal(MetadataLog(disk, HERE, RAFT, 0).log.log_end_offset, 9, "the end of the log beside a damaged snapshot")


def stamp_all(content: bytearray) -> None:
    """Set magic and CRC of each batch, as far as the length fields lead. The last batch ends where the content does."""
    pos = 0
    while pos + HEADER_BYTES <= len(content):
        (length,) = struct.unpack_from(">i", content, pos + 8)
        end = pos + 12 + length
        if not pos + HEADER_BYTES <= end <= len(content):
            end = len(content)
        stamp(content, pos, end)
        pos = end


def snapshot_seeds() -> Iterator[bytes]:
    values = [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=29), 0),
        encode_record(NoOpRecord(), 0),
    ]
    disk = disk_with({})
    write_bootstrap(disk, HERE, values, 1000)
    for how in (0, 1, 2, 3):
        yield bytes((how,)) + (disk.read(f"{HERE}/{BOOTSTRAP_FILE}") or b"")
    for version, voters in ((STATIC_VOTERS, None), (DYNAMIC_VOTERS, dynamic_voters(1, 2, 3))):
        path = f"{HERE}/{file_name(SNAPSHOT)}"
        writer = SnapshotWriter(
            disk, path, SNAPSHOT, last_contained_log_timestamp=5, kraft_version=version, voters=voters, now_ms=1
        )
        writer.append(values)
        writer.freeze()
        for begin in (b"\1", b"\5"):
            yield begin + (disk.read(path) or b"")
    yield b"\1" + data_batch(values, base_offset=0, epoch=1, now_ms=1)


TARGETS = [
    Target("files", small, small_seeds, (CorruptFile, InconsistentLogDirectory), bytes_max=512, share=25),
    Target("snapshot", snapshot, snapshot_seeds, (CorruptFile,), bytes_max=1024, share=4),
]
