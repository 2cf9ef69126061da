"""The coordinators of a cluster: the node that leads the partition to which a group or a transactional id belongs."""

from __future__ import annotations

import time

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.testing import Cluster
from tests.broker.wire import Wire

GROUP, TRANSACTION, SHARE = 0, 1, 2
FOUND_SECONDS_MAX = 30
NAMES_MAX = 100
POLL_SECONDS = 0.02
#: The limit for FindCoordinator, which takes a second when it causes the creation of the topic.
ANSWER_SECONDS_MAX = 3


def coordinator_of(cluster: Cluster, key_type: int, key: str) -> int:
    """Return the coordinator that any running node names. A node that a test has paused is not asked, because it would not
    answer.
    """
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    deadline = time.monotonic() + FOUND_SECONDS_MAX
    while True:
        for node in cluster.nodes.values():
            if not cluster.is_running(node.id) or cluster.is_paused(node.id):
                continue
            try:
                with Wire(node.port) as wire:
                    wire.sock.settimeout(ANSWER_SECONDS_MAX)
                    found = wire.request(request).coordinators[0]
            except OSError:
                continue
            if found.error_code == 0:
                return int(found.node_id)
        assert time.monotonic() < deadline, f"no broker coordinates {key}"
        time.sleep(POLL_SECONDS)


def group_coordinator(cluster: Cluster, group_id: str) -> int:
    return coordinator_of(cluster, GROUP, group_id)


def transaction_coordinator(cluster: Cluster, transactional_id: str) -> int:
    return coordinator_of(cluster, TRANSACTION, transactional_id)


def transactional_id_at(cluster: Cluster, node_id: int, prefix: str) -> str:
    """Return an id whose coordinator is this node at present."""
    return _name_at(cluster, TRANSACTION, node_id, prefix)


def group_id_at(cluster: Cluster, node_id: int, prefix: str) -> str:
    return _name_at(cluster, GROUP, node_id, prefix)


def _name_at(cluster: Cluster, key_type: int, node_id: int, prefix: str) -> str:
    for number in range(NAMES_MAX):
        if coordinator_of(cluster, key_type, f"{prefix}-{number}") == node_id:
            return f"{prefix}-{number}"
    raise AssertionError(f"node {node_id} coordinates none of {NAMES_MAX} names: does it lead any partition?")
