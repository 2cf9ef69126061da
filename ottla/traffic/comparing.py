"""Two responses to the same request, compared field by field: the recorded one, and that of the cluster to which the request
was sent again.

Fields that may differ between two correct clusters are in one table, with the reason. Names that each cluster chooses itself
(such as member ids) are compared after translation of the recording's names. Lists whose items have keys are compared by these,
because their order has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.json_form import json_name
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.batch import HEADER_BYTES, MAGIC, BatchView
from ottla.protocol.schema import Records, fields
from ottla.traffic.identities import Identities, names_nothing, place_of
from ottla.traffic.messages import FrameMessage, api_name
from ottla.traffic.record_noise import UNPACKED_BYTES_MAX

TIME, PLACE, RELEASE, WORDS = "of the moment", "of the cluster", "of the release", "words for people"

#: Fields that may differ. A name without a dot is valid for all APIs, otherwise the API is before the dot.
LEGAL: dict[str, str] = {
    ".throttle_time_ms": TIME,
    ".log_append_time_ms": TIME,
    ".issue_timestamp_ms": TIME,
    ".expiry_timestamp_ms": TIME,
    ".max_timestamp_ms": TIME,
    ".session_lifetime_ms": TIME,
    ".heartbeat_interval_ms": PLACE,
    ".error_message": WORDS,
    ".batch_index_error_message": WORDS,
    ".cluster_id": PLACE,
    ".controller_id": PLACE,
    ".leader_epoch": PLACE,
    ".leader_id": PLACE,
    ".current_leader": PLACE,
    ".node_endpoints": PLACE,
    ".preferred_read_replica": PLACE,
    ".replica_nodes": PLACE,
    ".isr_nodes": PLACE,
    ".offline_replicas": PLACE,
    ".node_id": PLACE,
    ".host": PLACE,
    ".port": PLACE,
    ".rack": PLACE,
    ".client_host": PLACE,
    ".hmac": PLACE,
    ".token_id": PLACE,
    ".coordinator_epoch": PLACE,
    "Metadata.brokers": PLACE,
    "DescribeCluster.brokers": PLACE,
    "DescribeTopicPartitions.eligible_leader_replicas": PLACE,
    "DescribeTopicPartitions.last_known_elr": PLACE,
    "DescribeLogDirs.results": PLACE,
    "DescribeQuorum.topics": PLACE,
    "DescribeQuorum.nodes": PLACE,
    "ApiVersions.api_keys": RELEASE,
    "ApiVersions.supported_features": RELEASE,
    "ApiVersions.finalized_features": RELEASE,
    "ApiVersions.finalized_features_epoch": TIME,
    "Fetch.session_id": PLACE,
    "Fetch.high_watermark": TIME,
    "Fetch.last_stable_offset": TIME,
    "Fetch.aborted_transactions": TIME,
    "ShareFetch.acquired_records": TIME,
    "GetTelemetrySubscriptions.client_instance_id": PLACE,
    "GetTelemetrySubscriptions.subscription_id": PLACE,
    "ListTransactions.transaction_states": TIME,
    "DescribeTransactions.transaction_start_time_ms": TIME,
    "DescribeProducers.last_timestamp": TIME,
}
#: Configurations whose values are of the cluster: addresses, directories, and the nodes themselves.
CONFIGS_OF_PLACE = frozenset(
    {
        "advertised.listeners", "broker.id", "broker.rack", "controller.quorum.bootstrap.servers", "controller.quorum.voters",
        "listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id",
    }
)  # fmt: skip
#: Responses whose size depends on their time: partitions and records that only one of them has may be in the next response of
#: the other cluster.
OPEN_ENDED = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
#: Fields by which items of two lists are matched.
KEYS = (
    "topic_id", "name", "topic", "topic_name", "partition_index", "partition", "partition_id", "index", "group_id", "member_id", "key",
    "transactional_id", "resource_type", "resource_name", "user", "mechanism", "feature", "api_key", "entity", "entity_type", "broker_id", "node_id",
)  # fmt: skip
#: This many differences of one response are kept: a user looks at the first ones.
DIFFERENCES_MAX = 100
SHOWN_MAX = 200


class FieldDifference(NamedTuple):
    """A field that differs, with both values as texts."""

    path: str
    recorded: str
    got: str


class Comparison:
    """The differences of one pair of responses. The comparison learns unknown names."""

    def __init__(self, api_key: int, identities: Identities) -> None:
        self._api = api_name(api_key)
        self._is_open_ended = api_key in OPEN_ENDED
        self._identities = identities
        self.differences: list[FieldDifference] = []

    def compare(self, recorded: FrameMessage, got: FrameMessage) -> list[FieldDifference]:
        """Return the differences."""
        if recorded.version != got.version:
            self._add("", f"version {recorded.version}", f"version {got.version}")
        else:
            self._struct("", recorded.body, got.body, got.version)
        return self.differences

    def _struct(self, path: str, one: Any, other: Any, version: int) -> None:
        is_of_place = self._api == "DescribeConfigs" and getattr(one, "name", None) in CONFIGS_OF_PLACE
        for field in fields(one.__plain__):
            if version not in field.versions or f".{field.name}" in LEGAL or f"{self._api}.{field.name}" in LEGAL:
                continue
            if is_of_place and field.name == "value":
                continue
            here = f"{path}.{json_name(field.name)}" if path else json_name(field.name)
            was, now = getattr(one, field.name), getattr(other, field.name)
            if was is None or now is None:
                if was is not now and not (self._is_open_ended and field.type.name == "Records"):
                    self._add(here, was, now)
            elif field.type.struct is not None:
                self._struct(here, was, now, version)
            elif field.type.name == "Records":
                self._records(here, was, now)
            elif field.type.item is None:
                self._value(here, one, field.name, was, now)
            elif field.type.item.struct is not None:
                self._items(here, was, now, version)
            elif was != now:
                self._add(here, was, now)

    def _value(self, path: str, holder: Any, name: str, was: object, now: object) -> None:
        place = place_of(holder, name)
        if was == now and getattr(holder, "error_code", None):
            return  # with an error, a name may have the default of its type
        if place is None:
            if was != now:
                self._add(path, was, now)
            return
        known = self._identities.known(place)
        if names_nothing(place.kind, now):
            self._add(path, was, now)
            return
        if known is not None and known != now:
            self._add(path, f"{_shown(was)}, here {_shown(known)}", now)
        if known != now:
            self._identities.learn(place, now)

    def _items(self, path: str, was: list[Any], now: list[Any], version: int) -> None:
        ours = {self._key(item, version, is_recorded=True): item for item in was}
        theirs = {self._key(item, version, is_recorded=False): item for item in now}
        if () in ours or len(ours) != len(was) or len(theirs) != len(now):
            if len(was) != len(now):
                self._add(path, f"{len(was)} items", f"{len(now)} items")
            for number, (one, other) in enumerate(zip(was, now, strict=False)):
                self._struct(f"{path}[{number}]", one, other, version)
            return
        left = [key for key in ours if key not in theirs and self._is_new(ours[key])]
        right = [key for key in theirs if key not in ours]
        pairs = dict(zip(left, right, strict=False))  # these pairs teach new names, such as those of a group's members
        for key, item in ours.items():
            there = theirs.get(pairs.get(key, key))
            if there is not None:
                self._struct(f"{path}[{_key_text(key)}]", item, there, version)
            elif not self._is_open_ended:
                self._add(f"{path}[{_key_text(key)}]", "there", "missing")
        if not self._is_open_ended:
            for key in theirs.keys() - ours.keys() - set(pairs.values()):
                self._add(f"{path}[{_key_text(key)}]", "missing", "there")

    def _key(self, item: Any, version: int, *, is_recorded: bool) -> tuple[object, ...]:
        """Return the key by which an item is matched: its names, as the cluster has them if that is known."""
        found: list[object] = []
        for field in fields(item.__plain__):
            if field.name not in KEYS or version not in field.versions:
                continue
            if field.name == "topic_id" and "name" in item.__field_names__ and item.name:
                continue  # the name of a topic is the same in each cluster
            value = getattr(item, field.name)
            if field.type.item is not None:  # the entity of a quota
                value = tuple(sorted(map(repr, value)))
            place = place_of(item, field.name)
            if place is not None and is_recorded:
                known = self._identities.known(place)
                value = value if known is None else known
            found.append(value)
        return tuple(found)

    def _is_new(self, item: Any) -> bool:
        """Return whether an item of the recording has a name whose translation is not known yet."""
        places = (place_of(item, name) for name in item.__field_names__ if name in KEYS)
        return any(place is not None and self._identities.known(place) is None for place in places)

    def _records(self, path: str, was: Records, now: Records) -> None:
        ours, theirs = dict(_rows(was)), dict(_rows(now))
        for offset in ours.keys() & theirs.keys() if self._is_open_ended else ours.keys() | theirs.keys():
            if ours.get(offset) != theirs.get(offset):
                self._add(f"{path}[{offset}]", ours.get(offset), theirs.get(offset))

    def _add(self, path: str, recorded: object, got: object) -> None:
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(FieldDifference(path, _shown(recorded), _shown(got)))


def has_passing_error(message: FrameMessage) -> bool:
    """Return whether a response has an error that passes by itself, such as a coordinator that is loading."""
    return any(ErrorCode(code).retriable for code in _error_codes(message.body))


def _error_codes(body: Any) -> Iterator[int]:
    for field in fields(body.__plain__):
        value = getattr(body, field.name)
        if field.name.endswith("error_code") and value:
            yield value
        elif field.type.struct is not None and value is not None:
            yield from _error_codes(value)
        elif field.type.item is not None and field.type.item.struct is not None and value:
            for item in value:
                yield from _error_codes(item)


def _rows(records: Records) -> Iterator[tuple[int, object]]:
    """Yield each readable record by its offset. Of a marker only the type is yielded."""
    data = memoryview(b"".join(records) if isinstance(records, list) else records)
    pos = 0
    while len(data) - pos >= HEADER_BYTES:
        batch = BatchView(data, pos)
        if batch.magic != MAGIC or batch.size < HEADER_BYTES or pos + batch.size > len(data):
            return
        pos += batch.size
        try:
            for record in batch.records(max_bytes=UNPACKED_BYTES_MAX):
                yield record.offset, record.key if batch.is_control else (record.key, record.value, record.headers)
        except KafkaError as fault:
            yield batch.base_offset, str(fault)


def _key_text(key: tuple[object, ...]) -> str:
    return ",".join(_shown(each) for each in key)


def _shown(value: object) -> str:
    text = uuid_to_str(value) if isinstance(value, bytes) and len(value) == 16 else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
