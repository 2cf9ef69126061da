"""A port that accepts is a node that serves.

librdkafka that asks a node for metadata while it has no live broker yet keeps that answer until its next refresh, minutes on.
"""

from __future__ import annotations

import threading
import time

import pytest

from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.wire import Wire
from tests.chaos.node_process import NodeProcess


def first_brokers(port: int) -> int:
    """Return how many brokers the first Metadata answer names that is to be had from this port."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with Wire(port) as wire:
                return len(wire.request(MetadataRequest(topics=[]), 12).brokers)
        except OSError:
            time.sleep(0.0005)
    raise AssertionError("the node never accepted a connection")


@pytest.mark.parametrize("attempt", range(3))
def test_the_first_metadata_answer_names_a_live_broker(attempt: int) -> None:
    node = NodeProcess()
    starting = threading.Thread(target=node.start)
    try:
        starting.start()
        assert first_brokers(node.port) == 1
    finally:
        starting.join()
        node.remove()
