"""Client quotas: what clients have used of them, and the resulting throttle times. The dispatcher, Fetch and the controller use
it.

    take      records a request: its bytes (Produce), and its time on the event loop (request_percentage, of one core)
    fetched   a consumer is about to get bytes: they are counted, or nothing is sent while it is in debt
    wait_ms   the response is sent: for how long its connection is not read from then on

A quota is that of the first entity by Kafka's precedence (KIP-55):

    1 user and client id   2 user, default client id   3 user           4 default user and client id
    5 default user, default client id   6 default user   7 client id     8 default client id

A user's quota is shared by all client ids of the user. A default quota is not shared: each user has the default user's quota
for itself.

Without quotas of users and client ids `active` is False, and a request only checks that. With quotas a request takes one
dictionary lookup for its client, and one addition for each meter. Meters are made at a client's first request, and forgotten
when they are idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.client_bounds import Kept, kept_metrics, short
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample
from ottla.server.quotas.rate import DEFAULT_WINDOWS, Bucket, Rate, Windows

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_QUOTAS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

#: ((entity type, name or None for the default), ...), sorted by type, as in the metadata image.
Entity = tuple[tuple[str, str | None], ...]
Entities = Mapping[Entity, Mapping[str, float]]


class Share(NamedTuple):
    """The clients that share a quota, as tags of Kafka's metrics. An empty string stands for any."""

    user: str
    client_id: str


def find_quota(entities: Entities, key: str, user: str, client_id: str) -> tuple[Share, float] | None:
    """Return the quota of a client with its share, or None. An empty client id counts as none, as in Kafka."""
    for entity, share in _candidates(user, client_id):
        values = entities.get(entity)
        if values is not None and (limit := values.get(key)) is not None:
            return share, limit
    return None


def _candidates(user: str, client_id: str) -> list[tuple[Entity, Share]]:
    found: list[tuple[Entity, Share]] = []
    for name in (user, None):
        if client_id:
            pair = Share(user, client_id)
            found += [(((CLIENT_ID, client_id), (USER, name)), pair), (((CLIENT_ID, None), (USER, name)), pair)]
        found.append((((USER, name),), Share(user, "")))
    if client_id:
        share = Share("", client_id)
        found += [(((CLIENT_ID, client_id),), share), (((CLIENT_ID, None),), share)]
    return found


#: Clients choose their ids. Above this number idle meters are searched for and removed.
METERS_MAX = 10_000
#: The memory for clients that have been looked up, which is some 10,000 of them.
CLIENTS_BYTES_MAX = 4 * 1024 * 1024
NS_PER_PERCENT = 10_000_000
#: These requests are never throttled: those between nodes, and those before a client has a name. Kafka throttles some of a
#: broker's requests to controllers, such as its heartbeats.
EXEMPT = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)
PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)


class Meter:
    """The use of one quota by the clients that share it."""

    __slots__ = ("bucket", "limit", "rate", "throttled_ms", "throttles")

    def __init__(self, windows: Windows, burst_ms: int) -> None:
        self.bucket = Bucket(burst_ms)
        self.rate = Rate(windows)
        self.limit = 1.0
        self.throttled_ms = 0
        self.throttles = 0

    def take(self, value: float, now_ms: int) -> None:
        self.bucket.take(value, self.limit, now_ms)
        self.rate.record(value, now_ms)

    def throttled(self, wait_ms: int) -> None:
        self.throttled_ms += wait_ms
        self.throttles += 1


class MutationQuota:
    """The controller mutation quota of one request (KIP-599), charged topic by topic as they are decided; without a meter there
    is no limit.

    strict        a topic is rejected with THROTTLING_QUOTA_EXCEEDED while the bucket is in debt; clients of these versions
                  retry
    permissive    older clients do not know that error: everything is done, and the client is throttled afterwards
    """

    def __init__(self, meter: Meter | None, clock: Clock, *, strict: bool) -> None:
        self._meter = meter
        self._clock = clock
        self._strict = strict
        self._until_ms = 0

    def charge(self, partitions: int) -> None:
        """Raise KafkaError if these partitions must not be created or deleted now."""
        meter = self._meter
        if meter is None:
            return
        now_ms = self._clock.mono_ms()
        if not self._strict:
            meter.take(partitions, now_ms)
        wait_ms = meter.bucket.wait_ms(now_ms)
        if wait_ms:
            self._until_ms = now_ms + wait_ms
            meter.throttled(wait_ms)
            if self._strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        elif self._strict:
            meter.take(partitions, now_ms)

    def wait_ms(self) -> int:
        """Return the throttle time for the response, minus the time by which the request was delayed already."""
        return max(0, self._until_ms - self._clock.mono_ms()) if self._until_ms else 0


def unlimited(partitions: int) -> None:
    """Charge nothing."""


@dataclass(slots=True, eq=False)
class ClientMeters:
    """The meters of one client. A meter is None if the client has no such quota."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutation: Meter | None


class ClientQuotas:
    """All quotas of clients on one node."""

    __slots__ = ("_clock", "_entities", "_mutation_windows", "active", "clients", "meters", "meters_max", "windows")

    def __init__(
        self, clock: Clock, windows: Windows = DEFAULT_WINDOWS, mutation_windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        self._clock = clock
        self.windows = windows
        self._mutation_windows = mutation_windows
        self._entities: Entities = {}
        self.clients: Kept[tuple[str, str | None], ClientMeters] = Kept("client_quotas", CLIENTS_BYTES_MAX)
        self.active = False
        self.meters: dict[tuple[str, Share], Meter] = {}
        self.meters_max = METERS_MAX

    def update(self, entities: Entities) -> None:
        """Use these quotas from now on. What has been used stays used."""
        self._entities = entities
        self.clients.clear()
        self.active = any(kind in (USER, CLIENT_ID) for entity in entities for kind, _ in entity)

    def connection_rate(self, host: str) -> float | None:
        """Return the limit of new connections per second from an address (KIP-612); None if there is no limit."""
        for name in (host, None):
            limit = self._entities.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                return limit
        return None

    # -- Clients -----------------------------------------------------------------------------------------------------

    def of(self, user: str, client_id: str | None) -> ClientMeters:
        found = self.clients.get((user, client_id))
        if found is None:
            if len(self.meters) >= self.meters_max:
                self._forget_idle()
            made = ClientMeters(
                *(
                    self._meter(key, user, client_id or "")
                    for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
                )
            )
            found = self.clients.keep((user, client_id), made, client_id or "")
        return found

    def _meter(self, key: str, user: str, client_id: str) -> Meter | None:
        quota = find_quota(self._entities, key, user, client_id)
        if quota is None:
            return None
        share, limit = quota
        share = share._replace(client_id=short(share.client_id))
        meter = self.meters.get((key, share))
        if meter is None:
            windows = self._mutation_windows if key == CONTROLLER_MUTATION_RATE else self.windows
            # KIP-599 allows the mutations of all windows at once, so that one request may create many partitions.
            burst_ms = windows.size_ms * (windows.num if key == CONTROLLER_MUTATION_RATE else 1)
            meter = self.meters[key, share] = Meter(windows, burst_ms)
        meter.limit = limit
        return meter

    def _forget_idle(self) -> None:
        now_ms = self._clock.mono_ms()
        self.clients.clear()
        self.meters = {
            key: meter
            for key, meter in self.meters.items()
            if not meter.rate.is_idle(now_ms) or meter.bucket.wait_ms(now_ms)
        }
        # If all meters are in use, the limit is doubled, so that not every new client causes a scan.
        self.meters_max = max(METERS_MAX, 2 * len(self.meters))

    def mutations(self, user: str, client_id: str | None, *, strict: bool) -> MutationQuota:
        meter = self.of(user, client_id).mutation if self.active else None
        return MutationQuota(meter, self._clock, strict=strict)

    # -- Requests ----------------------------------------------------------------------------------------------------

    def take(self, meters: ClientMeters, api_key: int, size: int, spent_ns: int) -> None:
        """Record a request of `size` bytes and its time on the event loop."""
        now_ms = self._clock.mono_ms()
        if meters.request is not None:
            meters.request.take(spent_ns / NS_PER_PERCENT, now_ms)
        if meters.produce is not None and api_key == PRODUCE:
            meters.produce.take(size, now_ms)

    def spent(self, meters: ClientMeters, spent_ns: int) -> None:
        """Record more time of a request that `take` has recorded.

        Its response already has its throttle time, so the next request is delayed for this.
        """
        if meters.request is not None:
            meters.request.take(spent_ns / NS_PER_PERCENT, self._clock.mono_ms())

    def wait_ms(self, meters: ClientMeters, api_key: int, *, is_asked: bool) -> int:
        """Return the time for which the connection is muted. `is_asked` is True if a response is sent (not for acks=0)."""
        wait_ms, meter = self._request_wait_ms(meters) if is_asked else (0, None)
        if api_key == PRODUCE and meters.produce is not None:
            produce_ms = meters.produce.bucket.wait_ms(self._clock.mono_ms())
            if produce_ms > wait_ms:
                wait_ms, meter = produce_ms, meters.produce
        if meter is not None:
            meter.throttled(wait_ms)
        return wait_ms

    def fetched(self, user: str, client_id: str | None, size: int) -> int:
        """Return the throttle time of a Fetch response of this size, or 0 if the consumer gets it now."""
        meters = self.of(user, client_id)
        wait_ms, meter = self._request_wait_ms(meters)
        if meters.fetch is not None:
            now_ms = self._clock.mono_ms()
            fetch_ms = meters.fetch.bucket.wait_ms(now_ms) if size else 0
            if fetch_ms > wait_ms:
                wait_ms, meter = fetch_ms, meters.fetch
            elif not wait_ms:
                meters.fetch.take(size, now_ms)
        if meter is not None:
            meter.throttled(wait_ms)
        return wait_ms

    def fetch_bytes_max(self, user: str, client_id: str | None) -> int | None:
        """Return the largest size of one response: the quota of one window, so that throttle times stay below a window."""
        meter = self.of(user, client_id).fetch
        return None if meter is None else max(1, int(meter.limit * self.windows.size_ms / 1_000))

    def _request_wait_ms(self, meters: ClientMeters) -> tuple[int, Meter | None]:
        if meters.request is None:
            return 0, None
        # As in Kafka, the wait is at most one window, because muting a connection also delays heartbeats.
        wait_ms = min(meters.request.bucket.wait_ms(self._clock.mono_ms()), self.windows.size_ms)
        return wait_ms, meters.request if wait_ms else None


#: Kafka's metric of each rate by user and client id, and its description.
RATES = {
    PRODUCER_BYTE_RATE: ("kafka_server_produce_byte_rate", "Bytes a second produced under a quota"),
    CONSUMER_BYTE_RATE: ("kafka_server_fetch_byte_rate", "Bytes a second fetched under a quota"),
    REQUEST_PERCENTAGE: ("kafka_server_request_request_time", "Share of the event loop used under a quota, in percent"),
    CONTROLLER_MUTATION_RATE: ("kafka_server_controllermutation_mutation_rate", "Partitions a second under a quota"),
}


def quota_metrics(quotas: ClientQuotas, now_ms: int) -> Iterator[Family]:
    """Return the metrics of clients with a quota. As in Kafka, throttle_time is the average of all throttled responses."""
    yield from kept_metrics([quotas.clients])
    for key, (rate, doc) in RATES.items():
        rows = [
            ({"user": share.user, "client_id": share.client_id}, meter)
            for (of, share), meter in quotas.meters.items()
            if of == key
        ]
        if not rows:
            continue
        prefix = "_".join(rate.split("_")[:3])  # kafka_server_fetch, of kafka.server:type=Fetch
        rates = [Sample(label, meter.rate.per_second(now_ms)) for label, meter in rows]
        yield Family(rate, GAUGE, doc, rates)
        if key == CONTROLLER_MUTATION_RATE:
            tokens = [Sample(label, meter.bucket.tokens(meter.limit, now_ms)) for label, meter in rows]
            yield Family(f"{prefix}_tokens", GAUGE, "Partitions that may be changed now", tokens)
        average = [Sample(label, meter.throttled_ms / max(1, meter.throttles)) for label, meter in rows]
        doc = "Milliseconds that a throttled answer names, on average"
        yield Family(f"{prefix}_throttle_time", GAUGE, doc, average)
        counts = [Sample(label, meter.throttles) for label, meter in rows]
        yield Family(f"{prefix}_throttled", COUNTER, "Answers that were throttled", counts)
