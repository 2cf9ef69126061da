"""The clusters that all workers of pytest-xdist share."""

from __future__ import annotations

import socket
from pathlib import Path

from ottla.testing.shared import SharedClusters, WantedCluster, ask


def test_a_worker_that_ends_while_it_asks_leaves_the_others_their_answers(tmp_path: Path) -> None:
    shared = SharedClusters()
    try:
        with socket.socket(socket.AF_UNIX) as ended:
            ended.connect(shared.place.address)
        running = ask(shared.place, WantedCluster("kafka_proc", 1, {}, False), str(tmp_path))
        running.topic("stock", seed=["apples"])
        assert [each.value for each in running.records("stock", 1)] == [b"apples"]
    finally:
        shared.close(failed=False)
