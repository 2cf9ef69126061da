"""Kafka's precedence of quotas (KIP-55), and which clients share one."""

from __future__ import annotations

import pytest

from ottla.server.quotas.clients import ClientQuotas, Entities, Entity, Share, find_quota
from tests.manual_clock import ManualClock

KEY = "producer_byte_rate"


def entity(**parts: str | None) -> Entity:
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in parts.items()))


#: From the first to the last one that applies to ann's client c, and the clients that share it.
ORDER: list[tuple[Entity, Share]] = [
    (entity(user="ann", client_id="c"), Share("ann", "c")),
    (entity(user="ann", client_id=None), Share("ann", "c")),
    (entity(user="ann"), Share("ann", "")),
    (entity(user=None, client_id="c"), Share("ann", "c")),
    (entity(user=None, client_id=None), Share("ann", "c")),
    (entity(user=None), Share("ann", "")),
    (entity(client_id="c"), Share("", "c")),
    (entity(client_id=None), Share("", "c")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_of_kafkas_order_counts(first: int) -> None:
    entities: Entities = {each: {KEY: float(index + 1)} for index, (each, _) in enumerate(ORDER) if index >= first}
    assert find_quota(entities, KEY, "ann", "c") == (ORDER[first][1], first + 1)


def test_an_entity_without_a_value_of_that_kind_does_not_count() -> None:
    entities: Entities = {entity(user="ann"): {"consumer_byte_rate": 1.0}, entity(user=None): {KEY: 2.0}}
    assert find_quota(entities, KEY, "ann", "c") == (Share("ann", ""), 2.0)


def test_others_are_not_meant() -> None:
    entities: Entities = {entity(user="bob"): {KEY: 1.0}, entity(client_id="d", user="ann"): {KEY: 1.0}}
    assert find_quota(entities, KEY, "ann", "c") is None


def test_a_client_without_an_id_has_only_quotas_of_users() -> None:
    entities: Entities = {entity(client_id=None): {KEY: 1.0}, entity(user=None, client_id=None): {KEY: 2.0}}
    assert find_quota(entities, KEY, "ann", "") is None
    assert find_quota({**entities, entity(user=None): {KEY: 3.0}}, KEY, "ann", "") == (Share("ann", ""), 3.0)


def test_an_address_has_its_own_rate_of_connections_or_the_default() -> None:
    entities: Entities = {
        entity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
        entity(ip=None): {"connection_creation_rate": 7.0},
    }
    quotas = ClientQuotas(ManualClock())
    assert quotas.connection_rate("10.0.0.1") is None
    quotas.update(entities)
    assert quotas.connection_rate("10.0.0.1") == 5
    assert quotas.connection_rate("10.0.0.2") == 7
