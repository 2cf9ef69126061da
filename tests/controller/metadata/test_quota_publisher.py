"""Quotas in the metadata reach the node's `ClientQuotas`, by a delta and by a snapshot."""

from __future__ import annotations

import asyncio

from ottla.controller.metadata.image import EMPTY, MetadataDelta
from ottla.controller.metadata.loader import QuotaPublisher
from ottla.protocol.internal_topics.metadata_records import ClientQuotaRecord
from ottla.protocol.messages.shared_structs import EntityData
from ottla.server.clock import SystemClock
from ottla.server.quotas.clients import ClientQuotas


async def test_a_quota_that_is_set_counts_and_one_that_is_removed_does_not() -> None:
    quotas = ClientQuotas(SystemClock(asyncio.get_running_loop()))
    publisher = QuotaPublisher(quotas)
    entity = [EntityData(entity_type="user", entity_name="ann")]
    image = EMPTY
    for remove, active in ((False, True), (True, False)):
        delta = MetadataDelta(image)
        delta.replay(ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=remove))
        image = delta.apply(0, 0)
        publisher.on_metadata_update(delta, image)
        assert quotas.active is active
    publisher.on_metadata_update(MetadataDelta(image), image)
    assert not quotas.active
