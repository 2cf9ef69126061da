"""DeleteShareGroupOffsets (92): forget an empty share group's offsets of topics (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DeleteShareGroupOffsetsResponse]:
    check_share_groups(broker)
    return broker.share_groups.delete_offsets(request)
