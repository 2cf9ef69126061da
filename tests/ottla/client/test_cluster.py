"""Bootstrap servers as users write them, and how long a client waits for the metadata of one of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.errors import USAGE
from ottla.cli.hints import as_command_failed
from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient, parse_bootstrap
from ottla.client.errors import ClusterError
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.server.address import Address


@pytest.mark.parametrize(
    "text, expected",
    [
        ("localhost:9093", [("localhost", 9093)]),
        ("kafka", [("kafka", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://a:1,SSL://b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9094,[fe80::1]", [("::1", 9094), ("fe80::1", 9092)]),
    ],
)
def test_good_ones(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:port", "host:0", "host:70000", "::1", "http://a:1/"])
def test_bad_ones_are_wrong_usage(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_bootstrap(text)
    assert as_command_failed(caught.value).exit_code == USAGE


class Cluster(ClusterClient):
    """Records the time limit of each request."""

    def __init__(self, bootstrap: list[Address], nodes: int) -> None:
        super().__init__(cast(Any, SimpleNamespace()), bootstrap, 30_000)
        self.waits_ms: list[int | None] = []
        self._nodes = range(1, nodes + 1)

    async def request(
        self, request: object, node: int | None = None, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        self.waits_ms.append(timeout_ms)
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=node, host="b") for node in self._nodes])


@pytest.mark.parametrize(
    "bootstrap, nodes, node, expected",
    [
        ("a", 1, None, [None, None]),
        ("a", 3, None, [None, ATTEMPT_MS_MAX]),
        ("a,b", 1, None, [ATTEMPT_MS_MAX, ATTEMPT_MS_MAX]),
        ("a", 1, 1, [ATTEMPT_MS_MAX, ATTEMPT_MS_MAX]),
    ],
    ids=["the only broker", "others are known then", "another one may be asked", "that broker is meant"],
)
def test_the_only_broker_has_the_time_of_the_command_and_one_of_several_has_less(
    bootstrap: str, nodes: int, node: int | None, expected: list[int | None]
) -> None:
    cluster = Cluster(parse_bootstrap(bootstrap), nodes)

    async def ask_twice() -> None:
        await cluster.metadata([], node)
        await cluster.metadata([], node)

    asyncio.run(ask_twice())
    assert cluster.waits_ms == expected
