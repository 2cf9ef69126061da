"""The addresses that the metadata of a local cluster may have: those of its nodes at earlier starts, and of a fork those of its cluster.

The metadata names a broker's address until the broker has registered from another, and those of voters that are records (KRaft version
1) until the voter has updated its own. Another cluster may listen there by then: nodes would follow its leaders, and end its transactions.
So the nodes of a start connect to each other in place of all former addresses (`ottla.peer.detours`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from ottla.client.failures import Failure
from ottla.local.directory import ORIGIN

#: The file in the directory of a cluster that has the addresses of its own starts, oldest first. `local_directory.ORIGIN` has those of a
#: fork's cluster.
FILE = "addresses.json"
#: The starts of a node whose addresses are kept. All nodes register in each start that is of any use, so that the metadata has the newest
#: few.
STARTS_MAX = 16
#: HOST:PORT of each broker, by its id, and of each controller, by `controller_key`.
Known = dict[str, list[str]]


def controller_key(node_id: int) -> str:
    return f"controller {node_id}"


def together(addresses: Iterable[Mapping[str, list[str]]]) -> Known:
    """Return all addresses of each node, each once: what the nodes know is not of the same moment."""
    found: dict[str, dict[str, None]] = {}
    for each in addresses:
        for node, known in each.items():
            found.setdefault(node, {}).update(dict.fromkeys(known))
    return {node: list(known) for node, known in found.items()}


def detours(directory: str, now: Mapping[str, str]) -> dict[str, str]:
    """Return which address stands for which former one at this start, whose addresses are `now`. They are former ones at the next.

    Raises:
        Failure: the former ones cannot be read.
    """
    own, origin = _read(directory, FILE), _read(directory, ORIGIN)
    kept = {node: [*(each for each in own.get(node, []) if each != here), here] for node, here in now.items()}
    _write(directory, {node: known[-STARTS_MAX:] for node, known in kept.items()})
    former = {node: [*origin.get(node, []), *own.get(node, [])] for node in now}
    # An address may have been one node's and then another's: it is the newer one that the metadata has.
    by_age = sorted((-age, old, node) for node, known in former.items() for age, old in enumerate(reversed(known)))
    current = set(now.values())
    return {old: now[node] for _, old, node in by_age if old not in current}


def note(directory: str, addresses: Mapping[str, list[str]]) -> None:
    """Note addresses that come with data which is put into the directory: they are in its metadata from now on."""
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
