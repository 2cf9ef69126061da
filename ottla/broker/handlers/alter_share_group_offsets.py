"""AlterShareGroupOffsets (91): set where an empty share group starts (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> Answer[AlterShareGroupOffsetsResponse]:
    check_share_groups(broker)
    return broker.share_groups.alter_offsets(request)
