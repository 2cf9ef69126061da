"""The command `ottla transaction`: forget, which gives up what a record of `__transaction_state` says that no broker can read."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.broker.coordinator.partitions import partition_for
from ottla.broker.topic_names import ADMIN_CLIENT_ID, TRANSACTION_STATE_TOPIC
from ottla.cli.application import CONNECTION, Connection, connect, run
from ottla.cli.client.cluster import TRANSACTION_KEY_TYPE, ClusterClient
from ottla.cli.client.failures import check
from ottla.cli.client.producer import Producer
from ottla.cli.errors import CommandFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.coordinator_records import encode_key
from ottla.protocol.internal_topics.transaction_records import TransactionLogKey
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.records import NewRecord

app = App(name="transaction", version_flags=[], help="Transactional ids whose record cannot be read: forget.")

main = partial(run, app)


@app.command
async def forget(
    ids: Annotated[list[str], Parameter(consume_multiple=True, help="Transactional ids.")],
    /,
    *,
    connection: Connection = CONNECTION,
) -> None:
    """Forget transactional ids that get UNKNOWN_SERVER_ERROR because their newest record cannot be read.

    A newer version may be able to read it: then start that one. If the record is of a transaction that was committed, markers
    that were not written yet never will be. `kafka-transactions find-hanging` shows what stays open, and its `abort` ends it.
    """
    async with connect(connection, client_id=ADMIN_CLIENT_ID) as cluster:
        for transactional_id in ids:
            if await _state(cluster, transactional_id) is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise CommandFailed(
                    f"the records of transactional id {transactional_id} can be read",
                    "`kafka-transactions describe` shows its state, and `force-terminate` ends its transaction",
                )
        producer = Producer(cluster, TRANSACTION_STATE_TOPIC)
        await producer.start()
        for transactional_id in ids:
            key = encode_key(TransactionLogKey(transactional_id=transactional_id))
            await producer.send(NewRecord(key, None), partition_for(transactional_id, producer.partitions))
        await producer.flush()
        for transactional_id in ids:
            print(f"forgot {transactional_id}")


async def _state(cluster: ClusterClient, transactional_id: str) -> ErrorCode:
    """NONE of one that can be described, TRANSACTIONAL_ID_NOT_FOUND, or UNKNOWN_SERVER_ERROR of one that cannot be read."""

    async def ask() -> tuple[ErrorCode, int]:
        node = await cluster.coordinator(transactional_id, TRANSACTION_KEY_TYPE)
        answer = await cluster.request(DescribeTransactionsRequest(transactional_ids=[transactional_id]), node)
        code = answer.transaction_states[0].error_code
        return ErrorCode(code), code

    code, _ = await cluster.retry(ask)
    if code not in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR):
        check(f"transactional id {transactional_id}", code)
    return code
