"""The addresses that a local cluster's metadata may have: those of its nodes at earlier starts; in a fork also those of its
cluster.

The metadata has a broker's address until the broker has registered with another one. It has the address of a voter in a record
(KRaft version 1) until the voter has updated it. Meanwhile another cluster may listen there: nodes would follow its leaders,
and end its transactions. Therefore the nodes connect to each other's present addresses in place of all former ones
(`ottla.peer.detours`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from ottla.client.failures import Failure
from ottla.local.directory import ORIGIN

#: The file in a cluster's directory with the addresses of its own starts, the oldest first. In a fork, `directory.ORIGIN` has
#: those of the cluster that it comes from.
FILE = "addresses.json"
#: The addresses of this many starts of a node are kept. All nodes register in each successful start, so the metadata has one of
#: the newest.
STARTS_MAX = 16
#: HOST:PORT addresses: those of a broker by its id, those of a controller by `controller_key`.
Known = dict[str, list[str]]


def controller_key(node_id: int) -> str:
    return f"controller {node_id}"


def together(addresses: Iterable[Mapping[str, list[str]]]) -> Known:
    """Return all addresses of each node, each once. The nodes' metadata may be from different times."""
    found: dict[str, dict[str, None]] = {}
    for each in addresses:
        for node, known in each.items():
            found.setdefault(node, {}).update(dict.fromkeys(known))
    return {node: list(known) for node, known in found.items()}


def detours(directory: str, now: Mapping[str, str]) -> dict[str, str]:
    """Return the present address for each former one. `now` has the addresses of this start, which are former ones at the next.

    Raises:
        Failure: the former addresses cannot be read.
    """
    own, origin = _read(directory, FILE), _read(directory, ORIGIN)
    kept = {node: [*(each for each in own.get(node, []) if each != here), here] for node, here in now.items()}
    _write(directory, {node: known[-STARTS_MAX:] for node, known in kept.items()})
    former = {node: [*origin.get(node, []), *own.get(node, [])] for node in now}
    # An address may have belonged to one node and later to another: the metadata has the later one.
    by_age = sorted((-age, old, node) for node, known in former.items() for age, old in enumerate(reversed(known)))
    current = set(now.values())
    return {old: now[node] for _, old, node in by_age if old not in current}


def note(directory: str, addresses: Mapping[str, list[str]]) -> None:
    """Add the addresses in data that is put into the directory: from now on its metadata may have them."""
    own = _read(directory, FILE)
    _write(directory, {node: [*own.get(node, []), *addresses.get(node, [])] for node in own.keys() | addresses.keys()})


def _read(directory: str, name: str) -> Known:
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="utf-8") as file:
            found: Known = {node: list(known) for node, known in json.load(file)["addresses"].items()}
            return found
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        what, remedy = (
            ("the fork could reach the cluster it comes from", "fork again")
            if name == ORIGIN
            else ("nodes could reach whatever listens at their former addresses now", "remove it, if nothing does")
        )
        raise Failure(f"{path} is damaged: {what}", remedy) from None


def _write(directory: str, addresses: Mapping[str, list[str]]) -> None:
    with open(os.path.join(directory, FILE), "w", encoding="utf-8") as file:
        json.dump({"addresses": addresses}, file)
