"""A share group with a dead-letter topic (KIP-1191) in a simulated cluster.

It has its topic before the first fault, because a leader that does not know the group's settings gives records up without a letter.
In the end every record that the group has given up has a letter, and none that was accepted has one (invariant 57).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from ottla.broker.share.dead_letter_queue import DELIVERIES_USED_UP, REJECTED
from ottla.broker.share.in_flight import AcknowledgeType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SHARE_VERSION
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.histories import Violation
from tests.sim.clients.admin import TIMEOUT_MS, UPGRADE, Admin
from tests.sim.clients.share_ledger import Place, ShareLedger
from tests.sim.clients.share_members import GROUP_RESOURCE
from tests.sim.cluster import SimCluster
from tests.sim.history import TopicPartition

TOPIC, SHARE_VERSION_LEVEL = "dlq.sharers", 2
PREPARED_SECONDS_MAX = 20


async def prepare(admin: Admin, cluster: SimCluster, group: str, *, copies: bool) -> None:
    """Set the feature, the topic and the group's settings, and wait until all brokers know them."""
    level = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=SHARE_VERSION_LEVEL, upgrade_type=UPGRADE)
    configs = {
        "errors.deadletterqueue.topic.name": TOPIC,
        "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
    }
    rows = [AlterableConfig(name=name, value=value) for name, value in configs.items()]
    settings = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, rows)])
    for request in (UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[level]), settings):
        code = await admin.spawn(admin.send(request), "prepares dead letters")
        if code is not ErrorCode.NONE:
            raise Violation("13", f"{type(request).__name__} is answered {code}")
    if not await admin.spawn(admin.create(TOPIC, 2, {"errors.deadletterqueue.group.enable": "true"}, 3), "creates"):
        raise Violation("54", f"{TOPIC} is not created")
    await _until(lambda: all(_knows(cluster, group)), "every broker knows the dead-letter topic")


def _knows(cluster: SimCluster, group: str) -> Iterator[bool]:
    for node in cluster.brokers:
        assert node.server is not None and node.server.broker is not None
        image = node.server.broker.replicas.image
        yield image.topics.by_name(TOPIC) is not None and bool(image.configs.for_group(group))


async def _until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(PREPARED_SECONDS_MAX * 20):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise Violation("54", f"not within {PREPARED_SECONDS_MAX} s: {what}")


Letters = dict[Place, list[tuple[dict[str, bytes | None], bytes | None]]]


def written(cluster: SimCluster) -> Letters:
    """Return the headers and the value of each committed letter, by the position of its record."""
    letters: Letters = {}
    for partition in (p for node in cluster.brokers for p in node.partitions() if p.topic == TOPIC):
        log = partition.leader_log
        for batch in () if log is None else log.batches(log.log_start_offset, log.high_watermark):
            for record in batch.records():
                headers = {name.removeprefix("__dlq.errors."): value for name, value in record.headers}
                topic, index, offset = (headers[name] or b"" for name in ("topic", "partition", "offset"))
                value = None if record.value is None else bytes(record.value).rstrip(b".")
                letters.setdefault((topic.decode(), int(index), int(offset)), []).append((headers, value))
    return letters


def check(ledger: ShareLedger, letters: Letters, logs: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
    """57, of everything that the group could read."""
    for (topic, index), log in logs.items():
        for offset, value in log.items():
            place = (topic, index, offset)
            known, found = ledger.deliveries.get(place), letters.get(place, [])
            decisions = set() if known is None else known.decisions
            if not found and AcknowledgeType.ACCEPT not in decisions:
                raise Violation("57", f"{value!r} at {place} was given up, and has no dead letter: {known}")
            if found and known is not None and known.is_accepted_in_time:
                raise Violation("57", f"{value!r} at {place} was accepted, and has a dead letter: {found}")
            for headers, copy in found:
                reason, count = (headers["message"] or b"").decode(), int(headers["delivery.count"] or b"0")
                is_right = reason == REJECTED and AcknowledgeType.REJECT in decisions
                is_right = is_right or (reason == DELIVERIES_USED_UP and count == ledger.limit)
                if not is_right or copy not in (None, value):
                    raise Violation("57", f"{value!r} at {place} has the dead letter {headers}, {copy!r}: {known}")
