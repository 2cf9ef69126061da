"""kafka-transactions: transactions and producers, and the end of transactions that hang (KIP-664)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.cli.shims.exceptions import message, reason
from ottla.cli.shims.tool import TreeParser, Unusable, connected, int32, int64, tab_table, with_cluster
from ottla.cli.shims.topic_filter import java_pattern
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.client.transactions import (
    OpenProducer,
    abort_by_marker,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from ottla.protocol.errors import ErrorCode

LISTED = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBED = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip
PRODUCERS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip
HANGING = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
    "Duration(min)",
)  # fmt: skip
#: Kafka's brokers allow at most this many minutes by default: a transaction that is open for longer may hang.
TIMEOUT_MINUTES = 15
MS_PER_MINUTE = 60_000


def main(arguments: list[str]) -> int:
    parser = TreeParser("kafka-transactions.sh", "This tool is used to analyze the transactional state of producers.")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("list", help="list transactions")
    command.add_argument("--duration-filter", type=int64, default=-1)
    command.add_argument("--transactional-id-pattern", default="")
    command = commands.add_parser("describe", help="describe the state of an active transactional-id")
    command.add_argument("--transactional-id", required=True)
    command = commands.add_parser("describe-producers", help="describe the producers of a topic partition")
    _add_place(command, required=True)
    command.add_argument("--broker-id", type=int32)
    command = commands.add_parser("abort", help="abort a hanging transaction (requires administrative privileges)")
    _add_place(command, required=True)
    for name in ("start-offset", "producer-id", "producer-epoch", "coordinator-epoch"):
        command.add_argument(f"--{name}", type=int64)
    command = commands.add_parser("find-hanging", help="find hanging transactions")
    _add_place(command, required=False)
    command.add_argument("--broker-id", type=int32)
    command.add_argument("--max-transaction-timeout", type=int64, default=TIMEOUT_MINUTES)
    command = commands.add_parser("forceTerminateTransaction", help="force abort an ongoing transaction")
    command.add_argument("--transactionalId", "--transactional-id", dest="transactional_id", required=True)
    options = connected(parser.parse_args(arguments))
    try:
        return with_cluster(options, lambda cluster: RUN[options.command](cluster, options))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        what, why = WHAT[options.command].format(**vars(options)), reason(failure)
        if failure.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            name = options.transactional_id
            why = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
        print(f"{what}: {why}. Enable debug logging for additional detail.", file=sys.stderr)
    return 1


WHAT = {
    "list": "Failed to list transactions",
    "describe": "Failed to describe transaction state of transactional-id `{transactional_id}`",
    "describe-producers": "Failed to describe producers for partition {topic}-{partition} on leader",
    "abort": "Failed to abort the transaction on partition {topic}-{partition}",
    "find-hanging": "Failed to describe producers",
    "forceTerminateTransaction": "Failed to force terminate transactionalId `{transactional_id}`",
}


def _add_place(command: argparse.ArgumentParser, *, required: bool) -> None:
    command.add_argument("--topic", required=required)
    command.add_argument("--partition", type=int32, required=required)


def _show(header: Sequence[object], rows: Sequence[Sequence[object]]) -> int:
    print("\n".join(tab_table([header, *rows])))
    return 0


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    pattern = java_pattern(options.transactional_id_pattern or ".*")
    rows = [
        row
        for row in await list_transactions(cluster, open_ms_min=options.duration_filter)
        if pattern.fullmatch(row.transactional_id)
    ]
    return _show(LISTED, rows)


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    node, state = await describe_transaction(cluster, options.transactional_id)
    start: object = "None"
    duration: object = "None"
    if state.transaction_start_time_ms >= 0:
        start = state.transaction_start_time_ms
        duration = cluster.world.clock.wall_ms() - state.transaction_start_time_ms
    places = ",".join(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions)
    facts = (state.producer_id, state.producer_epoch, state.transaction_state, state.transaction_timeout_ms)
    return _show(DESCRIBED, [(node, options.transactional_id, *facts, start, duration, places)])


async def _describe_producers(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found = await describe_producers(cluster, options.topic, [options.partition], options.broker_id)
    rows = [
        (
            row.producer_id,
            row.producer_epoch,
            row.coordinator_epoch,
            row.last_sequence,
            row.last_timestamp,
            "None" if row.current_txn_start_offset < 0 else row.current_txn_start_offset,
        )
        for row in found[options.partition]
    ]
    return _show(PRODUCERS, rows)


async def _abort(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if options.start_offset is None and options.producer_id is None:
        raise Unusable(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with "
            "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    place = (options.topic, options.partition)
    if options.start_offset is None:
        for name in ("producer-epoch", "coordinator-epoch"):
            if getattr(options, name.replace("-", "_")) is None:
                raise Unusable(f"Missing required argument --{name}")
        producer = OpenProducer(options.producer_id, options.producer_epoch, options.coordinator_epoch)
    else:
        found = (await describe_producers(cluster, options.topic, [options.partition]))[options.partition]
        row = next((row for row in found if row.current_txn_start_offset == options.start_offset), None)
        if row is None:
            raise Unusable(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition "
                f"{options.topic}-{options.partition}"
            )
        producer = OpenProducer(row.producer_id, row.producer_epoch, row.coordinator_epoch)
    await abort_by_marker(cluster, place, producer)
    return 0


async def _find_hanging(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Show transactions that are open for longer than allowed, and that no coordinator knows."""
    if options.topic is None and options.broker_id is None:
        raise Unusable(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.partition is not None and options.topic is None:
        raise Unusable("The --partition argument requires --topic to be provided")
    now_ms = cluster.world.clock.wall_ms()
    topics = (await cluster.metadata(None if options.topic is None else [options.topic])).topics
    rows = []
    if unknown := [topic for topic in topics if topic.error_code]:
        what = f"Failed to describe {len(unknown)} topics: {message(unknown[0].error_code)}"
        raise Unusable(f"{what}. Enable debug logging for additional detail.")
    for topic in topics:
        indexes = [
            part.partition_index
            for part in topic.partitions
            if options.partition in (None, part.partition_index)
            and (options.broker_id is None or options.broker_id in part.replica_nodes)
        ]
        name = topic.name or ""
        if not indexes:
            continue
        for index, producers in (await describe_producers(cluster, name, indexes, options.broker_id)).items():
            for row in producers:
                age_ms = now_ms - row.last_timestamp
                if row.current_txn_start_offset < 0 or age_ms <= options.max_transaction_timeout * MS_PER_MINUTE:
                    continue
                if await _is_coordinated(cluster, row.producer_id, (name, index)):
                    continue
                facts = (row.producer_id, row.producer_epoch, row.coordinator_epoch, row.current_txn_start_offset)
                rows.append((name, index, *facts, row.last_timestamp, age_ms // MS_PER_MINUTE))
    return _show(HANGING, rows)


async def _is_coordinated(cluster: ClusterClient, producer_id: int, place: TopicPartition) -> bool:
    for row in await list_transactions(cluster, producer_ids=[producer_id]):
        try:
            _, state = await describe_transaction(cluster, row.transactional_id)
        except Failure as failure:
            if failure.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            raise
        if any(topic.topic == place[0] and place[1] in topic.partitions for topic in state.topics):
            return True
    return False


async def _force_terminate(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await abort_transaction(cluster, options.transactional_id)
    return 0


RUN = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
    "forceTerminateTransaction": _force_terminate,
}
