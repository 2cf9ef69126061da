"""Lookup of quotas: that of a client by Kafka's precedence (KIP-55), and that of an address (KIP-612).

    1 user and client id   2 user, default client id   3 user           4 default user and client id
    5 default user, default client id   6 default user   7 client id     8 default client id

A user's quota is shared by all client ids of the user. A default quota is not shared: each user has the default user's quota
for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
    """The clients that share a quota, in the tags of Kafka's metrics: an empty string stands for any."""

    user: str
    client_id: str


def find_quota(entities: Entities, key: str, user: str, client_id: str) -> tuple[Share, float] | None:
    """Returns the quota of a client with its share, or None. An empty client id counts as none, as in Kafka."""
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


def connection_rate(entities: Entities, host: str) -> float | None:
    """Returns the limit of new connections per second from an address; None if there is no limit."""
    for name in (host, None):
        limit = entities.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None
