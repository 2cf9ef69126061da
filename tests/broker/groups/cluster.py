"""The topics that groups see, made of names and numbers of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups.group_config import GroupSettings
from ottla.broker.groups.group_metadata_manager import ClusterView
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.controller.metadata.shared_map import Map
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
from tests.broker.groups.inline_work import resolver, target_worker
from tests.manual_clock import ManualClock

PARTITION = PartitionRegistration((1,), (1,))


def id_of(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


def topics_image(counts: Mapping[str, int], other_ids: Iterable[bytes] = ()) -> TopicsImage:
    """Return an image of topics with these numbers of partitions, and of topics with `other_ids`, of which only the id matters."""
    topics = [TopicImage(name, id_of(name), Map(dict.fromkeys(range(n), PARTITION))) for name, n in counts.items()]
    topics += [TopicImage(topic_id.hex(), topic_id, Map()) for topic_id in other_ids]
    return TopicsImage(Map({topic.id: topic for topic in topics}), Map({topic.name: topic.id for topic in topics}))


def cluster_of(
    topics: Callable[[], TopicsImage] = TopicsImage,
    version: Callable[[], int] = lambda: 0,
    topics_created: Callable[[], int] = lambda: 0,
    clock: ManualClock | None = None,
    rack_of: Callable[[int], str | None] = lambda broker_id: f"rack-{broker_id}",
) -> ClusterView:
    clock = clock or ManualClock()
    settings = GroupSettings()
    return ClusterView(
        topics,
        lambda kind, group_id: settings,
        version,
        topics_created,
        resolver(clock),
        target_worker(clock),
        TopicHashes(rack_of, ShardTurns(clock).loads),
    )
