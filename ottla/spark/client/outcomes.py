"""How a transaction ended, read from the log of a partition that it wrote to.

Its coordinator knows that only until the transactional id is used again. Then it knows only the last producer, and responds for
every earlier epoch that it is fenced, whether that transaction was committed or aborted. The log keeps the outcome of each
transaction.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.offsets import READ_COMMITTED
from ottla.spark.client.producer import WrittenTransaction, end
from ottla.spark.errors import ConnectorError, check

#: Requests up to this version have the names of topics, not their ids.
_FETCH_VERSION_MAX = 12
_WAIT_MS_MAX = 500
_FETCH_BYTES_MAX = 1024
_UNDECIDED = ErrorCode.CONCURRENT_TRANSACTIONS


def commit_or_find(cluster: BlockingCluster, written: WrittenTransaction) -> bool:
    """Commit the transaction. Return True if it is committed, by this call or before, and False if it was aborted.

    Raises:
        ConnectorError: the outcome is not known.
    """
    return end(cluster, written.transaction, commit=True) or was_committed(cluster, written)


def was_committed(cluster: BlockingCluster, written: WrittenTransaction) -> bool:
    """Return whether a transaction that its producer can no longer end was committed.

    A Fetch response for read_committed names the aborted transactions that overlap with its records (KIP-98), so one batch at
    the transaction's own offset is enough. The records may be gone because of retention, or together with their topic: readers
    can never see them again, so they count as committed.

    Raises:
        ConnectorError: the partition cannot be read, or an older transaction stays open in it for longer than requests are
        retried.
    """

    def attempt() -> bool:
        part = _fetch(cluster, written)
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return True
        name, index = written.place
        check(f"reading {name}-{index}", part.error_code)
        if part.last_stable_offset <= written.offset:
            raise ConnectorError(
                f"{name}-{index}: an open transaction before offset {written.offset} hides how "
                f"{written.transaction.transactional_id} ended",
                "start the query again when it has ended: kafka-transactions.sh find-hanging",
                _UNDECIDED,
            )
        producer_id = written.transaction.producer_id
        aborted = part.aborted_transactions or ()
        return not any(row.producer_id == producer_id and row.first_offset <= written.offset for row in aborted)

    return cluster.retry(attempt, also=(_UNDECIDED,))


def _fetch(cluster: BlockingCluster, written: WrittenTransaction) -> PartitionData:
    name, index = written.place
    part = FetchPartition(index, fetch_offset=written.offset, partition_max_bytes=_FETCH_BYTES_MAX)
    request = FetchRequest(
        max_wait_ms=_WAIT_MS_MAX,
        min_bytes=1,
        max_bytes=_FETCH_BYTES_MAX,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(name, partitions=[part])],
    )
    response = cluster.call_node(cluster.leader(written.place), request, _FETCH_VERSION_MAX)
    check(f"reading {name}-{index}", response.error_code)
    found: PartitionData = response.responses[0].partitions[0]
    return found
