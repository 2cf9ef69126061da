"""ReadShareGroupStateSummary (87): epochs and start offsets of share partitions, for the group coordinator (KIP-932).

v1 adds the number of finished deliveries (KIP-1226).
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Answer[ReadShareGroupStateSummaryResponse]:
    check_share_groups(broker)
    return broker.share.coordinator.summarize(request)
