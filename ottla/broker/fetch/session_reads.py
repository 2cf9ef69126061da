"""Reads the active partitions of a fetch session for the fast path of Fetch, and packs their response (`repeated.py`).

`Fetching` (broker/fetch/fetching.py) does the same for every case, with a struct for each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.fetch.fetching import FetchedBroker
from ottla.broker.fetch.frames import Answered, response_frame
from ottla.broker.fetch.reader import READ_COMMITTED
from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.primitives import Buffer, Pieces
from ottla.storage.errors import StorageFailure

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition
    from ottla.server.network.context import RequestContext
    from ottla.server.network.route import Route
    from ottla.storage.log.log import Log

NO_BYTES: Buffer = b""
Found: TypeAlias = "tuple[FetchPartition, Partition, Log]"
#: Records are None where nothing was to be read.
Row: TypeAlias = "tuple[FetchPartition, Partition, Log, Buffer | None]"
UNUSUAL: tuple[int, list[Row]] = (-1, [])


class SessionReads:
    """The base class of `RepeatedFetch`: access through another object would cost a part of what the fast path saves."""

    __slots__ = (
        "_by_id", "_read_committed", "_replica_epoch", "_replica_id", "broker", "context", "gathering", "mono_ns", "request", "route", "session",
    )  # fmt: skip

    def __init__(
        self,
        broker: FetchedBroker,
        route: Route,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
    ) -> None:
        """`request`: one of those that the fast path serves, for all fields that do not differ."""
        self.broker, self.route, self.context = broker, route, context
        self.request, self.session = request, session
        self.gathering = broker.replicas.wakeups.gathering
        self.mono_ns = broker.world.clock.mono_ns
        version = context.api_version
        self._by_id = broker.replicas.by_id
        self._replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        self._replica_epoch = request.replica_state.replica_epoch
        self._read_committed = request.isolation_level == READ_COMMITTED

    def look(self) -> tuple[int, list[Row]]:
        """Returns how many bytes can be read now, and the rows of the response; -1 and no row if `Fetching` has to look."""
        found = self._find(self.session)
        return UNUSUAL if found is None else self._read(found)

    def _find(self, session: FetchSession) -> list[Found] | None:
        """Returns the active partitions with their logs; None if one of them is not led here, or not to be read from its position."""
        found: list[Found] = []
        replica_id = self._replica_id
        for wanted in session.active:
            partitions = self._by_id.get(wanted.topic_id)
            partition = None if partitions is None else partitions.get(wanted.index)
            log = None if partition is None else partition.leader_log
            if partition is None or log is None:
                return None
            leader_epoch, fetched_epoch = wanted.current_leader_epoch, wanted.last_fetched_epoch
            if (
                not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset
                or (leader_epoch != partition.leader_epoch and leader_epoch >= 0)
                # An earlier epoch may have diverged.
                or (fetched_epoch != log.epochs.latest and fetched_epoch >= 0)
            ):
                return None
            if replica_id >= 0:
                follower = partition.followers.get(replica_id)
                if follower is None or partition.leader_throttle is not None:
                    return None
                if 0 <= self._replica_epoch < follower.broker_epoch:
                    return None
            found.append((wanted, partition, log))
        return found

    def _record_positions(self, session: FetchSession, found: list[Found], now_ms: int) -> list[Found] | None:
        """All of them before any partition is read: see broker/fetch/fetching.py."""
        session.contact_ms = now_ms
        replica_id, replica_epoch = self._replica_id, self._replica_epoch
        for wanted, partition, _ in found:
            if partition.leader_log is not None:
                partition.record_follower_fetch(
                    replica_id, wanted.fetch_offset, wanted.replica_log_start_offset, now_ms, replica_epoch
                )
        # What they have committed may have made other partitions active, or taken one offline.
        if len(session.active) != len(found):
            return self._find(session)
        for _, partition, log in found:
            if partition.leader_log is not log:
                return self._find(session)
        return found

    def _gathers(self, found: list[Found]) -> bool:
        """See broker/replication/purgatory/gathering.py."""
        records = 0
        for wanted, partition, log in found:
            ahead = log.log_end_offset - wanted.fetch_offset
            if ahead and not partition.is_gathered:
                return False
            records += ahead
        return self.gathering.wants(records)

    def _read(self, found: list[Found]) -> tuple[int, list[Row]]:
        is_follower, read_committed = self._replica_id >= 0, self._read_committed
        remaining = min(self.request.max_bytes, self.broker.fetch_max_bytes)
        total, was_read = 0, False
        rows: list[Row] = []
        for wanted, partition, log in found:
            offset = wanted.fetch_offset
            if is_follower:
                up_to = log.log_end_offset
            else:
                up_to = log.last_stable_offset if read_committed else log.high_watermark
            max_bytes = wanted.max_bytes
            if offset >= up_to or max_bytes < 0:
                rows.append((wanted, partition, log, None))
                continue
            if max_bytes > remaining:
                max_bytes = remaining
            try:
                records, _, next_offset = log.read(offset, max_bytes=max_bytes, up_to_offset=up_to, min_one=not total)
                if read_committed and log.aborted_transactions(offset, next_offset):
                    return UNUSUAL
            except (KafkaError, StorageFailure):
                return UNUSUAL
            was_read = True
            size = len(records)
            total += size
            remaining = max(0, remaining - size)
            rows.append((wanted, partition, log, records))
        return UNUSUAL if was_read and not total else (total, rows)

    def response(self, correlation_id: int, rows: list[Row]) -> tuple[bytes, Pieces, int]:
        """Returns the response's frame: its head, other pieces, and bytes. Afterwards the session is as its client knows it."""
        session, replica_id = self.session, self._replica_id
        is_incremental = session.id != 0
        answered: list[Answered] = []
        for wanted, partition, log, records in rows:
            high_watermark, start = log.high_watermark, log.log_start_offset
            stable = log.last_stable_offset
            size = 0
            if records is not None:
                size = len(records)
                partition.reads += 1
                if replica_id >= 0:
                    partition.replication_bytes_out += size
                else:
                    partition.bytes_out += size
            must_include = wanted.must_include(high_watermark, start, has_records=size > 0, has_error=False)
            if must_include or not is_incremental:
                answered.append((wanted.topic_id, wanted.index, high_watermark, stable, start, records or NO_BYTES))
            if not is_incremental:
                wanted.watch(None)
            elif size:
                session.move_to_end(wanted)
            else:
                if replica_id >= 0:
                    at_end = wanted.fetch_offset >= log.log_end_offset
                    knows_all = at_end and not partition.next_fetch_may_expand_isr(replica_id)
                else:
                    knows_all = wanted.fetch_offset >= (stable if self._read_committed else high_watermark)
                if knows_all:
                    session.settle(wanted, partition.watches)
        return response_frame(correlation_id, session.id, answered, int(self._read_committed))
