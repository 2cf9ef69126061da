"""Fixtures for pytest, there as soon as Ottla is installed: `kafka_proc`, `kafka_cluster`, `kafka_topic`. See docs/TESTING.md.

Every worker of pytest-xdist has clusters of its own, with their own free ports and directories. They start when a test first asks
for one, and end with the worker, however that ends.
"""

from __future__ import annotations

import uuid

import pytest

from ottla.testing import factories


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka clusters for tests (Ottla)")
    group.addoption("--kafka-nodes", type=int, metavar="N", help="nodes of kafka_cluster")
    group.addoption(
        "--kafka-property", action="append", default=[], metavar="NAME=VALUE", help="a property for every node"
    )
    group.addoption("--kafka-secure", action="store_true", help="TLS, logins and ACLs; see Cluster.client_settings")
    parser.addini("kafka_nodes", "nodes of kafka_cluster", default="3")
    parser.addini("kafka_properties", "properties for every node, a line each", type="linelist")


kafka_proc = factories.kafka_proc()
kafka_cluster = factories.kafka_cluster()


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """A topic's name that no other test uses: the clusters live as long as the session, and keep what they are given."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    return f"{name[:200]}-{uuid.uuid4().hex[:8]}"
