"""One pass of the log cleaner over sealed segments: it reads and writes files only. It runs in a process of its own.

The dirty part is read into an `OffsetMap`. Then every segment from the start of the log is filtered by `cleaner_filter` into
a new `.cleaned` file, group by group. Source segments are never changed, so the log may be used meanwhile;
`storage.cleaner.cleaner`, which owns the log, decides whether a written group is swapped in.

`advance` does a bounded piece of the work and returns the progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from struct import Struct
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    COUNT_AT,
    HEADER,
    HEADER_BYTES,
    MAX_TIMESTAMP,
    BatchView,
    Header,
    crc32c,
)
from ottla.protocol.slotted import frozen, mutable
from ottla.storage.cleaner.cleaner_filter import (
    Keep,
    OffsetMap,
    TransactionsSeen,
    commits,
    encoded_records,
    ordinals_max,
)
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files, MappedFile, Mappings
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import AbortedTxn
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    REACH_BYTES,
    SegmentFile,
    segment_path,
)
from ottla.storage.segment.walk import walk

#: The size of one piece of work: between two pieces a pass can be stopped, and the throttle applies.
PIECE_BYTES = 4 << 20
#: The cost of a batch beside that of its bytes.
BATCH_COST_BYTES = 200
#: The number of keys that are collected before they are put into the map: keys superseded among them are never hashed.
GATHERED_KEYS_MAX = 32_768
#: Surviving batches are buffered up to this size and written together.
WRITE_BYTES = 1 << 20
#: The swap renames each segment of a group, at about 0.05 ms each, and the event loop waits for it.
GROUP_SEGMENTS_MAX = 50
_COUNT = Struct(">i")


@frozen
class SourceSegment:
    base_offset: int
    size: int


def group_sources(
    sources: Sequence[SourceSegment], index_bytes: Sequence[int], config: LogConfig, end: int
) -> list[list[SourceSegment]]:
    """Group adjacent segments whose total size fits into one segment, and whose offsets can be relative to one base.

    `index_bytes` are the sizes of their offset indexes.
    """
    groups: list[list[SourceSegment]] = []
    size = indexed = 0
    for i, source in enumerate(sources):
        following = sources[i + 1].base_offset if i + 1 < len(sources) else end
        group = groups[-1] if groups else []
        fits = (
            0 < len(group) < GROUP_SEGMENTS_MAX
            and size + source.size <= config.segment_bytes
            and indexed + index_bytes[i] <= config.segment_index_bytes
            and following - 1 - group[0].base_offset < 2**31
        )
        if not fits:
            groups.append([])
            size = indexed = 0
        groups[-1].append(source)
        size += source.size
        indexed += index_bytes[i]
    return groups


@frozen
class Job:
    """The input of a pass. `sources` are the log's sealed segments below `end`."""

    directory: str
    sources: tuple[SourceSegment, ...]
    config: LogConfig
    first_dirty: int
    end: int
    now_ms: int
    memory_bytes: int
    load_factor: float
    aborted: tuple[AbortedTxn, ...]
    last_of_producers: dict[int, tuple[int, int]]


@frozen
class PassProgress:
    """The result of a piece of work. `written` are the base offsets of the segments that a finished `.cleaned` segment of `size` replaces."""

    moved_bytes: int
    written: tuple[int, ...] = ()
    size: int = 0
    #: The offset that is set with the last piece: all below this offset is clean once all groups are swapped in.
    clean_until: int | None = None
    records: int = 0


@mutable
class _Work:
    """Bytes read and written in the present slice. Each batch has a fixed cost besides its bytes."""

    moved: int = 0
    cost: int = 0
    records: int = 0

    def add(self, moved: int) -> bool:
        self.moved += moved
        self.cost += moved + BATCH_COST_BYTES
        return self.cost >= PIECE_BYTES

    def take(self, **fields: Any) -> PassProgress:
        progress = PassProgress(self.moved, records=self.records, **fields)
        self.moved = self.cost = self.records = 0
        return progress


@mutable
class _Output:
    """A `.cleaned` segment, and the batches that wait to be written to it."""

    segment: Segment
    headers: list[Header] = field(default_factory=list)
    parts: list[bytes | memoryview] = field(default_factory=list)
    waiting: int = 0

    def add(self, kept: bytes | memoryview) -> None:
        if self.waiting and self.waiting + len(kept) > WRITE_BYTES:
            self.write()
        self.parts.append(kept)
        self.headers.append(HEADER.unpack_from(kept, 0))
        self.waiting += len(kept)

    def write(self) -> None:
        if self.waiting:
            self.segment.make_room(self.waiting)
            latest = max(header[MAX_TIMESTAMP] for header in self.headers)
            self.segment.append_all(b"".join(self.parts), self.waiting, self.headers, latest)
            self.headers, self.parts, self.waiting = [], [], 0


class CleaningPass:
    """One pass over one log. A caller that stops a pass early removes the `.cleaned` files."""

    def __init__(self, files: Files, job: Job) -> None:
        self._files = files
        self._job = job
        self._mappings = Mappings()
        # Base offset of a dirty segment -> the ordinal of its first record, and the ordinal after that of its last record.
        self._ordinals: dict[int, tuple[int, int]] = {}
        # Base offset of a segment -> the highest offset that it can contain.
        following = [*(source.base_offset for source in job.sources[1:]), job.end]
        self._limits = {source.base_offset: end - 1 for source, end in zip(job.sources, following, strict=True)}
        self._work = _Work()
        self._first_base = 0
        self._steps = self._run()

    def advance(self, first_base: int = 0) -> PassProgress:
        """Do the next piece of work. Segments below `first_base` have been removed meanwhile."""
        self._first_base = first_base
        return next(self._steps)

    def _run(self) -> Iterator[PassProgress]:
        job = self._job
        offsets = OffsetMap(job.first_dirty, self._count_dirty(), job.memory_bytes, job.load_factor)
        yield from self._fill(offsets)
        end = min(offsets.latest_offset + 1, job.end)
        sources = [source for source in job.sources if source.base_offset < end]
        index_bytes = [self._files.size(self._path(source, INDEX_SUFFIX)) or 0 for source in sources]
        keep = Keep(offsets, job.end, job.now_ms, job.config, job.last_of_producers)
        transactions = TransactionsSeen()
        transactions.add_aborted(job.aborted)
        for group in group_sources(sources, index_bytes, job.config, job.end):
            yield from self._rewrite(group, keep, transactions)
        yield self._work.take(clean_until=end)

    def _path(self, source: SourceSegment, suffix: str) -> str:
        return segment_path(self._job.directory, source.base_offset, suffix)

    # The dirty part

    def _dirty_sources(self) -> Iterator[SourceSegment]:
        sources = self._job.sources
        for i, source in enumerate(sources):
            following = sources[i + 1].base_offset if i + 1 < len(sources) else self._job.end
            if following > self._job.first_dirty:
                yield source

    def _count_dirty(self) -> int:
        """Count the records of the dirty part by its batch headers, up to the number for which there is memory."""
        count, most = 0, ordinals_max(self._job.memory_bytes)
        for source in self._dirty_sources():
            mapped = self._mapped(source)
            for position, _ in self._headers(mapped, source):
                if count >= most:
                    break
                count += max(_COUNT.unpack_from(mapped.buffer, position + COUNT_AT)[0], 0)
            mapped.close()
        return min(count, most)

    def _fill(self, offsets: OffsetMap) -> Iterator[PassProgress]:
        job = self._job
        transactions = TransactionsSeen()
        transactions.add_aborted(txn for txn in job.aborted if txn.last_offset >= job.first_dirty)
        latest: dict[bytes, int] = {}
        for source in self._dirty_sources():
            start = offsets.records
            for batch in self._batches(source):
                if batch.last_offset < job.first_dirty:
                    continue
                if batch.is_control:
                    if (commit := commits(batch)) is not None:
                        transactions.marker_is_superfluous(batch, commit)
                elif not transactions.belongs_to_aborted(batch):
                    if len(latest) >= GATHERED_KEYS_MAX or not offsets.has_room(batch.count, len(latest) + batch.count):
                        offsets.put_all(latest)
                        latest.clear()
                        if not offsets.has_room(batch.count, batch.count):
                            if offsets.records:
                                return
                            room = f"a map for {offsets.keys_max} keys: log.cleaner.dedupe.buffer.size is too small"
                            raise KafkaError(ErrorCode.INVALID_RECORD, f"{batch!r} does not fit into {room}")
                    self._gather(batch, offsets, latest)
                offsets.latest_offset = batch.last_offset
                self._ordinals[source.base_offset] = (start, offsets.records)
                if self._work.add(batch.size):
                    yield self._work.take()
        offsets.put_all(latest)
        offsets.latest_offset = max(offsets.latest_offset, job.end - 1)

    def _gather(self, batch: BatchView, offsets: OffsetMap, latest: dict[bytes, int]) -> None:
        _check_crc(batch)
        _, records = encoded_records(batch, self._job.config.max_decompressed_message_bytes)
        packed = offsets.records << 1
        for _, key, is_tombstone, _, _ in records:
            if key is not None:
                latest[key] = packed | is_tombstone
            packed += 2
        offsets.records += len(records)
        self._work.records += len(records)

    # Writing

    def _rewrite(
        self, group: list[SourceSegment], keep: Keep, transactions: TransactionsSeen
    ) -> Iterator[PassProgress]:
        if group[-1].base_offset < self._first_base:
            return  # retention removed it
        job = self._job
        directory, base = job.directory, group[0].base_offset
        file = SegmentFile(self._files, self._mappings, directory, base, job.config, suffix=CLEANED_SUFFIX)
        for name in file.names():  # from a pass that was stopped
            self._files.remove(name)
        segment = Segment(file, job.now_ms)
        segment.create_file()
        transactions.cleaned_index = []
        output = _Output(segment)
        for source in group:
            yield from self._filter_into(output, source, keep, transactions)
        output.write()
        for txn in transactions.cleaned_index:
            segment.txn_index.append(self._files, txn)
        segment.seal()
        segment.flush()
        yield self._work.take(written=tuple(source.base_offset for source in group), size=segment.file.size)

    def _filter_into(
        self, output: _Output, source: SourceSegment, keep: Keep, transactions: TransactionsSeen
    ) -> Iterator[PassProgress]:
        start, end = self._ordinals.get(source.base_offset, (0, 0))
        keep.ordinal = start
        for batch in self._batches(source):
            _check_crc(
                batch
            )  # a damaged batch must not get a valid checksum, and a damaged key must not remove other records
            kept = keep.filtered(batch, transactions)
            if len(kept):
                output.add(kept)
            if self._work.add(batch.size + len(kept)):
                yield self._work.take()
        # Both reads of the dirty part must count the same records, or the map's byte of one record would decide about another.
        assert keep.ordinal == end, f"segment {source.base_offset} ends with record {keep.ordinal}, not {end}"

    # Reading

    def _mapped(self, source: SourceSegment) -> MappedFile:
        path = self._path(source, LOG_SUFFIX)
        mapped = self._files.map(path, 0, False)
        if mapped.size < source.size:
            raise CorruptFile(path, f"{mapped.size} bytes, {source.size} were written")
        return mapped

    def _batches(self, source: SourceSegment) -> Iterator[BatchView]:
        """Yield the batches of a source; their headers are checked.

        Raises:
            DamagedLog, StorageFailure
        """
        mapped = self._mapped(source)
        reached = 0
        for position, end in self._headers(mapped, source):
            if end > reached:  # touching a page that the disk cannot read would kill the process (SIGBUS)
                reached = min(max(end, position + REACH_BYTES), source.size)
                mapped.populate(position, reached)
            yield BatchView(mapped.buffer, position)
        mapped.close()

    def _headers(self, mapped: MappedFile, source: SourceSegment) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each batch. Only the headers are known to be in memory."""

        def reach(position: int) -> int:
            end = min(position + HEADER_BYTES, source.size)
            mapped.populate(position, end)
            return end

        limit = self._limits[source.base_offset]
        for position, end, _, _ in walk(mapped.buffer, 0, source.size, mapped.path, source.base_offset, limit, reach):
            yield position, end


def _check_crc(batch: BatchView) -> None:
    found = crc32c(batch.buffer[ATTRIBUTES_AT:])
    if found != batch.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{batch!r}: crc is {batch.crc:#x}, contents give {found:#x}")
