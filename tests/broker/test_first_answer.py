"""A port that accepts is a node that serves.

If librdkafka gets metadata without a live broker, it keeps that response until its next refresh, minutes later.
"""

from __future__ import annotations

import threading
import time

import pytest

from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.wire import Wire
from tests.chaos.node_process import NodeProcess


def first_brokers(port: int) -> int:
    """Return the number of brokers in the first Metadata response that this port gives."""
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
