"""New metadata takes effect on a broker: roles, logs and configs, in the one order that is safe.

    0  whose metadata is it        a process that was replaced by another of the same id stops leading, and applies no more
    1  the cache                   clients see the new leaders
    2  the broker's own configs    because the logs of step 3 take their defaults from them
    3  replicas                    create, lead, follow, delete; this notifies the coordinators
    4  topics' configs             for logs that were there before; new ones had them in step 3
    5  everybody else who listens

One path for log and snapshot: a snapshot is a delta too. Steps 3 to 5 are done in slices where there are many partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.replicas import Replicas
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.work import Work

Listener = Callable[[MetadataDelta, MetadataImage], Work[None] | None]


class BrokerPublisher:
    """A `controller.metadata.publisher.Publisher`."""

    def __init__(
        self,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        is_replaced_in: Callable[[MetadataImage], bool],
    ) -> None:
        self._own = (ResourceType.BROKER.value, str(configs.node_id))
        self._all_brokers = (ResourceType.BROKER.value, "")
        self._configs = configs
        self._metadata = metadata
        self._replicas = replicas
        self._is_replaced_in = is_replaced_in
        self._replaced = False
        self.listeners: list[Listener] = []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
        if not self._replaced and self._is_replaced_in(image):
            self._replaced = True
            self._replicas.resign_all()
        if self._replaced:
            return
        self._metadata.image = image
        changed = {} if delta.configs is None else delta.configs.changed_resources
        broker_configs_changed = self._own in changed or self._all_brokers in changed
        if broker_configs_changed:
            self._configs.update(image.configs)
        yield from self._replicas.apply(delta, image)
        if broker_configs_changed:
            yield from self._replicas.update_all_configs()
        else:
            yield from self._replicas.update_configs(name for kind, name in changed if kind == ResourceType.TOPIC)
        for listener in self.listeners:
            if (work := listener(delta, image)) is not None:
                yield from work
