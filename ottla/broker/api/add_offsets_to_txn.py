"""AddOffsetsToTxn (25): the partition that holds a group's offsets joins a transaction. v2 PRODUCER_FENCED."""

from __future__ import annotations

from ottla.broker.api._producer_fenced import as_known
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_coordinator_service import TOPIC as GROUP_METADATA_TOPIC
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

PRODUCER_FENCED_SINCE = 2


def handle(
    broker: BrokerComponents, request: AddOffsetsToTxnRequest, context: RequestContext
) -> Answer[AddOffsetsToTxnResponse]:
    added = broker.transactions.coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset([(GROUP_METADATA_TOPIC, broker.groups.partition_for(request.group_id))]),
        client_transaction_version=0,
    )
    return then(
        added,
        lambda error: AddOffsetsToTxnResponse(error_code=as_known(error, context.api_version, PRODUCER_FENCED_SINCE)),
    )
