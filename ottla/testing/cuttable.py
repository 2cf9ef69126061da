"""The connections of a cluster, which a test can cut and slow down. A cluster has these verbs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from ottla.local import nodes as local_nodes
from ottla.local.nodes import LocalNode
from ottla.testing.errors import MadeOtherwise, NoSuchNode, in_range
from ottla.testing.links import CLIENTS, Direction, Links
from ottla.testing.spoiled import FAULT_SECONDS_MAX

#: A link without any bandwidth would be a cut.
BYTES_PER_SECOND_MIN, BYTES_PER_SECOND_MAX = 1, 1 << 40


class Cuttable:
    """Keeps the links between nodes and those of clients, if the cluster was made with them."""

    def __init__(self, nodes: Sequence[LocalNode], *, cuttable: bool, are_ports_set: bool) -> None:
        """Set up the connections of nodes that do not run. If their ports are given, clients find proxies there."""
        self._links: Links | None = None
        if cuttable:
            self._links = Links(nodes, local_nodes.put_behind_proxies(nodes) if are_ports_set else None)
            for node in nodes:
                node.proxy_port = self._links.advertised_port(node.id)

    def node(self, node_id: int) -> LocalNode:
        raise NotImplementedError

    @property
    def node_ids(self) -> list[int]:
        raise NotImplementedError

    def partition(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Cut the connections between two nodes until `heal`; with `one_way` only what `one` sends to `other` is lost."""
        links = self._cuttable()
        there, back = self._way(one, other), self._way(other, one)
        links.cut(*([there] if one_way else [there, back]))

    def _way(self, sender: int, receiver: int) -> Direction:
        for place in (sender, receiver):
            if place != CLIENTS:
                self.node(place)
        if sender == receiver:
            raise NoSuchNode(f"node {sender} has no connection to itself", "name two nodes")
        return Direction(sender, receiver)

    def isolate(self, node_id: int, *, clients: bool = False) -> None:
        """Cut a node off from all others. Clients can still reach it, unless `clients` is true."""
        self._cuttable()
        for other in set(self.node_ids) - {self.node(node_id).id}:
            self.partition(node_id, other)
        if clients:
            self.partition(node_id, CLIENTS)

    def latency(self, ms: float, *node_ids: int, clients: bool = True, nodes: bool = True) -> None:
        """Delay the bytes from and to these nodes, or all, by this much each way: on connections of clients, and between nodes."""
        seconds = in_range("ms", ms, 0, FAULT_SECONDS_MAX * 1000) / 1000
        self._cuttable().slow(self._links_of(node_ids, clients, nodes), seconds, None)

    def bandwidth(self, bytes_per_second: float, *node_ids: int, clients: bool = True, nodes: bool = True) -> None:
        """Limit the bytes in a second, in each direction between two nodes, or between a node and all clients."""
        passing = in_range("bytes_per_second", bytes_per_second, BYTES_PER_SECOND_MIN, BYTES_PER_SECOND_MAX)
        self._cuttable().slow(self._links_of(node_ids, clients, nodes), None, passing)

    def _links_of(self, node_ids: Sequence[int], clients: bool, nodes: bool) -> list[Direction]:
        wanted = {self.node(node_id).id for node_id in node_ids or self.node_ids}
        places = [*([CLIENTS] if clients else []), *self.node_ids]
        return [
            Direction(*pair)
            for pair in permutations(places, 2)
            if wanted.intersection(pair) and (nodes or CLIENTS in pair)
        ]

    def _mend_links(self, *pair: int) -> None:
        if pair:
            one, other = pair if len(pair) == 2 else (pair[0], pair[0])
            self._cuttable().mend(self._way(one, other), self._way(other, one))
        elif self._links is not None:
            self._links.mend()

    def _cuttable(self) -> Links:
        if self._links is None:
            raise MadeOtherwise(
                "the connections of this cluster cannot be cut or slowed",
                "make it with cuttable=True, or take the fixture kafka_to_break",
            )
        return self._links
