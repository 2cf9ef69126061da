"""DescribeShareGroupOffsets (90): where share groups start in their partitions (KIP-932). v1 adds the lag (KIP-1226)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, gather


def handle(
    broker: BrokerComponents, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DescribeShareGroupOffsetsResponse]:
    check_share_groups(broker)
    return gather(
        [broker.share_groups.describe_offsets(group) for group in request.groups],
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
    )
