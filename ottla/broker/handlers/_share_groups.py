"""The handlers of share groups' APIs share this: whether the cluster has share groups."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import SHARE_VERSION


def has_share_groups(broker: BrokerComponents) -> bool:
    return broker.metadata.image.features.level(SHARE_VERSION) >= 1


def check_share_groups(broker: BrokerComponents) -> None:
    """KafkaError UNSUPPORTED_VERSION before share.version is finalized at 1."""
    if not has_share_groups(broker):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
