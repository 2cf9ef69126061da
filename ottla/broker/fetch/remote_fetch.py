"""A Fetch below the local start offset: its records are read from remote storage, off the loop (KIP-405).

Only one partition of a request is read from there, as in Kafka before 4.2: its records complete the response, and the session
reads the other partitions first in the next requests. The request waits for `remote.fetch.max.wait.ms`; then it is answered
without these records, which the next one finds in memory. A follower with such a lag gets OFFSET_MOVED_TO_TIERED_STORAGE
instead, and reads the store itself.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.fetch.handler import DelayedReply, PendingFetch
from ottla.broker.fetch.reader import Moved, Row, failed
from ottla.broker.tiers.tier_reads import TieredRecords, TierReads
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import AbortedTransaction, FetchResponse, PartitionData
from ottla.server.network.context import Reply


class RemoteFetch(DelayedReply):
    """The delayed fetch of a request with a partition that is read from remote storage."""

    __slots__ = ("_found", "_log", "_offset", "_wanted")

    def __init__(
        self,
        fetch: PendingFetch,
        rows: list[Row],
        reply: Reply[FetchResponse],
        tiers: TierReads,
        moved: Moved,
    ) -> None:
        super().__init__(fetch, rows, reply, False, tiers.wait_ms)
        self._wanted, partition, self._log = moved
        self._offset = self._wanted.fetch_offset
        self._found: TieredRecords | KafkaError | None = None
        reader = fetch.reader
        max_bytes = min(self._wanted.max_bytes, reader.max_bytes)
        work = tiers.read(partition, self._log, self._offset, max_bytes, read_committed=reader.read_committed)
        tiers.begin(partition, work, self._read)

    def wake(self, is_over: bool = False) -> None:
        """Do nothing: the reply waits for the store, even if other partitions get records."""

    def _read(self, found: TieredRecords | KafkaError) -> None:
        self._found = found
        if self.is_waiting:
            self.expire()

    def _send(self, rows: list[Row]) -> None:
        for index, (wanted, partition, own, records, data) in enumerate(rows):
            # Use what was read only for the same log and offset: the session's partition may have got another log, or another
            # position, since.
            is_same = wanted is self._wanted and own is self._log and wanted.fetch_offset == self._offset
            if not is_same or data is not None or records is not None or own is None:
                continue
            found = self._found
            if isinstance(found, KafkaError):
                rows[index] = wanted, partition, None, None, failed(wanted.index, found.code)
            elif found is not None and found.records and self._offset >= own.log_start_offset:
                listed = [AbortedTransaction(each.producer_id, each.first_offset) for each in found.aborted]
                with_aborted = (
                    PartitionData(partition_index=wanted.index, aborted_transactions=listed) if listed else None
                )
                rows[index] = wanted, partition, own, found.records, with_aborted
        super()._send(rows)


class RemoteFetches:
    """Makes the delayed fetches of a broker that has remote storage."""

    def __init__(self, reads: TierReads) -> None:
        self.reads = reads

    def begin(
        self, fetch: PendingFetch, rows: list[Row], reply: Reply[FetchResponse], moved: Moved
    ) -> Callable[[], None]:
        """Read one partition of a request from remote storage, then complete the reply; return how to cancel it."""
        return RemoteFetch(fetch, rows, reply, self.reads, moved).cancel
