"""The brokers that a request of a recording belongs to in another cluster: leaders of its partitions, and coordinators.

The recording's client has sent it to one broker. Where the leaders are others it becomes several requests, one for each broker, and their
responses become one again. What is about no partition and no group goes to the broker in place of the recorded one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID

GROUP, TRANSACTION = 0, 1
#: Partitions and keys whose brokers are known, oldest first to go: a recording can name any number.
KNOWN_MAX = 1_000_000


class PartitionList(NamedTuple):
    """The fields of a request that name partitions: the list of topics, the list of partitions in it, and the number of one."""

    topics: str
    partitions: str
    #: None: the items are the numbers.
    number: str | None


BY_LEADER: Mapping[int, PartitionList] = {
    ApiKey.PRODUCE: PartitionList("topic_data", "partition_data", "index"),
    ApiKey.FETCH: PartitionList("topics", "partitions", "partition"),
    ApiKey.LIST_OFFSETS: PartitionList("topics", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: PartitionList("topics", "partitions", "partition"),
    ApiKey.DELETE_RECORDS: PartitionList("topics", "partitions", "partition_index"),
    ApiKey.DESCRIBE_PRODUCERS: PartitionList("topics", "partition_indexes", None),
}
#: The kind of the key, and the fields that can have it: a text, or a list of texts or of items with one.
BY_COORDINATOR: Mapping[int, tuple[int, tuple[str, ...]]] = {
    ApiKey.OFFSET_COMMIT: (GROUP, ("group_id",)),
    ApiKey.OFFSET_FETCH: (GROUP, ("groups", "group_id")),
    ApiKey.OFFSET_DELETE: (GROUP, ("group_id",)),
    ApiKey.JOIN_GROUP: (GROUP, ("group_id",)),
    ApiKey.SYNC_GROUP: (GROUP, ("group_id",)),
    ApiKey.HEARTBEAT: (GROUP, ("group_id",)),
    ApiKey.LEAVE_GROUP: (GROUP, ("group_id",)),
    ApiKey.DESCRIBE_GROUPS: (GROUP, ("groups",)),
    ApiKey.DELETE_GROUPS: (GROUP, ("groups_names",)),
    ApiKey.TXN_OFFSET_COMMIT: (GROUP, ("group_id",)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (GROUP, ("group_id",)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (GROUP, ("group_ids",)),
    ApiKey.SHARE_GROUP_HEARTBEAT: (GROUP, ("group_id",)),
    ApiKey.SHARE_GROUP_DESCRIBE: (GROUP, ("group_ids",)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (GROUP, ("group_id",)),
    ApiKey.STREAMS_GROUP_DESCRIBE: (GROUP, ("group_ids",)),
    ApiKey.INIT_PRODUCER_ID: (TRANSACTION, ("transactional_id",)),
    ApiKey.ADD_PARTITIONS_TO_TXN: (TRANSACTION, ("v3_and_below_transactional_id", "transactions")),
    ApiKey.ADD_OFFSETS_TO_TXN: (TRANSACTION, ("transactional_id",)),
    ApiKey.END_TXN: (TRANSACTION, ("transactional_id",)),
    ApiKey.DESCRIBE_TRANSACTIONS: (TRANSACTION, ("transactional_ids",)),
}
KEY_OF_ITEM = {GROUP: "group_id", TRANSACTION: "transactional_id"}
#: Fields by which the topics and groups of several responses are put together.
MERGED_BY = ("name", "topic", "topic_id")

#: A topic by its name, or by its id where the request has none.
Topic = str | bytes


class RoutedCluster(Protocol):
    """The cluster, asked for what is not known yet."""

    @property
    def nodes(self) -> Iterable[int]: ...
    async def leaders(self, topic: Topic) -> Mapping[int, int]:
        """Return the leaders of a topic's partitions; none of a topic that is not there."""

    async def coordinator(self, kind: int, key: str) -> int | None:
        """Return the broker of a group or transactional id, or None if there is none now."""


class RoutedPart(NamedTuple):
    """The request to one broker."""

    node: int
    body: Any


class Routes:
    """The brokers of partitions, groups and transactional ids, as far as they are known."""

    def __init__(self, cluster: RoutedCluster) -> None:
        self._cluster = cluster
        self._leaders: dict[Topic, Mapping[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        #: A broker has answered that it is not the one, so there are others, even if only one is known.
        self._has_forgotten = False

    async def parts(self, api_key: int, body: Any, otherwise: int) -> list[RoutedPart]:
        """Return the requests that a request becomes; `otherwise` gets what belongs to no other broker."""
        if len(list(self._cluster.nodes)) < 2 and not self._has_forgotten:
            return [RoutedPart(otherwise, body)]
        if api_key in BY_LEADER:
            return await self._by_leader(BY_LEADER[api_key], body, otherwise)
        if api_key in BY_COORDINATOR:
            return await self._by_coordinator(*BY_COORDINATOR[api_key], body, otherwise)
        return [RoutedPart(otherwise, body)]

    async def leader(self, topic: Topic, partition: int) -> int | None:
        known = self._leaders.get(topic, {})
        if partition not in known:
            known = await self._cluster.leaders(topic)
            _keep(self._leaders, topic, known)
        return known.get(partition)

    def forget(self) -> None:
        """Look everything up again: a broker has answered that it is not the one."""
        self._has_forgotten = True
        self._leaders.clear()
        self._coordinators.clear()

    async def _by_leader(self, fields: PartitionList, body: Any, otherwise: int) -> list[RoutedPart]:
        parts: dict[int, Any] = {}
        for topic in getattr(body, fields.topics):
            split: dict[int, list[Any]] = {}
            for item in getattr(topic, fields.partitions):
                number = item if fields.number is None else getattr(item, fields.number)
                node = await self.leader(topic_of(topic), number)
                split.setdefault(otherwise if node is None else node, []).append(item)
            for node, items in split.items():
                of_node = copy.copy(topic)
                setattr(of_node, fields.partitions, items)
                if node not in parts:
                    parts[node] = copy.copy(body)
                    setattr(parts[node], fields.topics, [])
                getattr(parts[node], fields.topics).append(of_node)
        return [RoutedPart(node, part) for node, part in parts.items()] or [RoutedPart(otherwise, body)]

    async def _by_coordinator(self, kind: int, names: tuple[str, ...], body: Any, otherwise: int) -> list[RoutedPart]:
        name = next((each for each in names if getattr(body, each)), None)
        if name is None:
            return [RoutedPart(otherwise, body)]
        keys = getattr(body, name)
        if isinstance(keys, str):
            return [RoutedPart(await self._coordinator(kind, keys, otherwise), body)]
        split: dict[int, list[Any]] = {}
        for item in keys:
            key = item if isinstance(item, str) else getattr(item, KEY_OF_ITEM[kind])
            split.setdefault(await self._coordinator(kind, key, otherwise), []).append(item)
        parts = []
        for node, items in split.items():
            part = copy.copy(body)
            setattr(part, name, items)
            parts.append(RoutedPart(node, part))
        return parts

    async def _coordinator(self, kind: int, key: str, otherwise: int) -> int:
        node = self._coordinators.get((kind, key))
        if node is None:
            node = await self._cluster.coordinator(kind, key)
            if node is None:
                return otherwise
            _keep(self._coordinators, (kind, key), node)
        return node


def topic_of(holder: Any) -> Topic:
    """Return the topic that an item of a request names."""
    name: str = getattr(holder, "name", "") or getattr(holder, "topic", "")
    if name:
        return name
    found: bytes = getattr(holder, "topic_id", ZERO_UUID)
    return found


def merge(response: Any, other: Any) -> None:
    """Put the items of another response into a response: those of one topic come together."""
    for name in response.__field_names__:
        ours, theirs = getattr(response, name), getattr(other, name)
        if not isinstance(ours, list) or not isinstance(theirs, list):
            continue
        known = {_merge_key(item): item for item in ours}
        for item in theirs:
            key = _merge_key(item)
            if key is not None and key in known:
                merge(known[key], item)
            else:
                ours.append(item)


def _merge_key(item: object) -> tuple[object, ...] | None:
    found = tuple(getattr(item, name) for name in MERGED_BY if hasattr(item, name))
    return found or None


def _keep(known: dict[Any, Any], key: object, value: object) -> None:
    if len(known) >= KNOWN_MAX:
        del known[next(iter(known))]
    known[key] = value
