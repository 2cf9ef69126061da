"""Counts of a node, as Prometheus gets them."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.server.admin import AdminServer
from ottla.server.clock import SystemClock
from ottla.server.metrics import SCRAPE_TURN_NS, Family, Registry, counter, gauge, quantile_of_buckets, scrape
from ottla.server.network import network_metrics
from ottla.server.network.network_metrics import listener_metrics, request_metrics
from ottla.server.network.route import Route
from ottla.server.world import RealWorld
from tests.manual_clock import ManualClock
from tests.server.tiny_node import LIST_GROUPS, heartbeat, request, tiny_node


def refuse(request: object, context: object) -> None:
    raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def test_requests_and_connections_are_counted_under_kafkas_names() -> None:
    route = Route(LIST_GROUPS, refuse)
    async with tiny_node(route) as node:
        client = await node.client()
        sent = heartbeat("m", 1) * 20 + request(LIST_GROUPS, 0, ListGroupsRequest(), 2)
        client.send(sent)
        await client.correlation_ids(21)
        registry = Registry()
        registry.add(lambda: listener_metrics([node.listener]))
        registry.add(lambda: request_metrics([route]))
        text = (await scrape(registry, SystemClock(asyncio.get_running_loop()))).decode()
    assert 'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"} 1.0' in text
    software = (
        'connections_software{client_software_name="unknown",client_software_version="unknown",listener="PLAINTEXT"}'
    )
    assert f"kafka_server_socket_server_metrics_{software} 1.0" in text
    assert 'kafka_server_socket_server_metrics_connection_creation_total{listener="PLAINTEXT"} 1.0' in text
    assert 'kafka_server_socket_server_metrics_connection_unread_total{listener="PLAINTEXT"} 0.0' in text
    assert f'kafka_server_socket_server_metrics_incoming_byte_total{{listener="PLAINTEXT"}} {float(len(sent))}' in text
    assert 'kafka_network_requestmetrics_requests_total{request="ListGroups"} 1.0' in text
    assert (
        'kafka_network_requestmetrics_errors_total{error="CLUSTER_AUTHORIZATION_FAILED",request="ListGroups"} 1.0'
        in text
    )
    assert 'kafka_network_requestmetrics_totaltimems{quantile="0.99",request="ListGroups"}' in text


async def test_names_of_client_libraries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_metrics, "SOFTWARE_MAX", 1)
    async with tiny_node(Route(LIST_GROUPS, refuse)) as node:
        clients = [await node.client() for _ in range(4)]
        for client in clients:
            client.send(heartbeat("m", 1))
            await client.correlation_ids(1)
        for number, connection in enumerate(node.listener.connections):
            connection.client_software_name = f"library-{min(number, 2)}"
        (family,) = [each for each in listener_metrics([node.listener]) if each.name.endswith("_software")]
    assert [(each.labels["client_software_name"], each.value) for each in family.samples] == [
        ("library-2", 2),
        ("other", 2),
    ]


async def test_a_source_that_fails_does_not_take_the_others_with_it(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Family]:
        yield gauge("kafka_a", "a", 1)
        raise ValueError("a bug")

    registry = Registry()
    registry.add(broken)
    registry.add(lambda: [counter("kafka_b", "b", 5, topic="t"), counter("kafka_b", "b", 6, topic="u")])
    with caplog.at_level(logging.ERROR):
        text = (await scrape(registry, ManualClock())).decode()
    samples = [line for line in text.splitlines() if line.startswith("kafka_b")]
    assert samples == ['kafka_b_total{topic="t"} 5.0', 'kafka_b_total{topic="u"} 6.0']
    assert "A source of metrics failed" in caplog.text


@pytest.mark.parametrize(
    ("buckets", "quantile", "low", "high"),
    [
        ([0, 10], 0.5, 1, 2),
        ([0, 0, 0, 100], 0.99, 7.8, 8),
        ([50, 0, 0, 0, 50], 0.75, 8, 16),
        ([0, 0, 1], 0.999, 2, 4),
        ([], 0.5, 0, 0),
    ],
)
def test_quantiles_lie_in_the_bucket_they_fall_into(
    buckets: list[int], quantile: float, low: float, high: float
) -> None:
    assert low <= quantile_of_buckets(buckets, quantile) <= high


async def test_a_scrape_takes_its_share_of_a_turn_and_goes_on_in_the_next() -> None:
    clock, registry, made = ManualClock(), Registry(), list[int]()

    def slow(number: int) -> Iterator[Family]:
        clock.now_ms += SCRAPE_TURN_NS // 1_000_000
        made.append(number)
        yield gauge(f"kafka_slow_{number}", "takes a whole turn", number)

    for number in range(3):
        registry.add(partial(slow, number))
    scraping = asyncio.create_task(scrape(registry, clock))
    while len(made) < 3:
        before = len(made)
        await asyncio.sleep(0)
        assert len(made) - before <= 1
        clock.turn()
    while not scraping.done():
        await asyncio.sleep(0)
        clock.turn()
    assert b"kafka_slow_2 2.0" in scraping.result()


async def test_a_scrape_is_answered_while_the_node_runs_and_ends_with_it() -> None:
    registry = Registry()
    registry.add(lambda: [gauge("kafka_server_replicamanager_partitioncount", "Partitions", 3)])
    real = RealWorld(asyncio.get_running_loop())
    endpoint = AdminServer(real.world, "127.0.0.1", 0, registry, lambda: (), lambda: ())
    await endpoint.start()
    url = f"http://127.0.0.1:{endpoint.port}/metrics"

    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    text = await asyncio.to_thread(fetch)
    assert "kafka_server_replicamanager_partitioncount 3.0" in text
    assert "process_resident_memory_bytes" in text
    await endpoint.stop()
    with pytest.raises(OSError):
        await asyncio.to_thread(fetch)
    await real.close()
