"""The addresses of a listener: those that its host has on this machine, with a bound socket for each.

    host            sockets
    ""              every address of the machine: one socket for IPv4 and IPv6, if there is IPv6
    0.0.0.0, ::     every address of this family only, for two listeners that share a port (`of_every_family`)
    a name          one socket for each of its addresses, IPv4 first

Apache Kafka binds a name only to its first address, which Java takes from IPv4. With only one family, connections of clients
with the other are refused on each machine whose hosts file has two lines for localhost, as Debian's has.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import NamedTuple

log = logging.getLogger(__name__)

WILDCARDS = frozenset({"", "*", "0.0.0.0", "::", "[::]"})
#: The host's address is not here: it belongs to another machine, or the family is switched off.
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: How often a port is tried that is free in both families.
FREE_PORT_TRIES = 20


class ListeningAt(NamedTuple):
    """An address to bind. With `dualstack` a socket of IPv6 also accepts connections of IPv4."""

    family: int
    address: tuple[object, ...]
    dualstack: bool = False


def of_every_family(host: str) -> str:
    """Return the host, or "" for one that means every address."""
    return "" if host in WILDCARDS else host


def addresses_of(host: str, port: int) -> list[ListeningAt]:
    """Raise OSError if the host is not known."""
    if not host:
        return [ListeningAt(socket.AF_INET6, ("::", port), True), ListeningAt(socket.AF_INET, ("0.0.0.0", port))]
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found = dict.fromkeys(ListeningAt(family, address) for family, _, _, _, address in rows)
    return sorted(found, key=lambda each: each.family != socket.AF_INET)


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return the sockets of a listener, bound but not yet listening.

    They have the same port, also for port 0. An address that this machine does not have is left out, if there is another one.

    Raises:
        OSError: the host is not known, this machine has none of its addresses, or the port is in use at one of them.
    """
    for _ in range(FREE_PORT_TRIES):
        try:
            return _bound_to_all(host, port)
        except OSError as failure:
            if port or failure.errno != errno.EADDRINUSE:
                raise
    return _bound_to_all(host, port)


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return the sockets of an HTTP server, which listen at every address that the host means. Raises as `bound_sockets`."""
    made = bound_sockets(of_every_family(host), port)
    for each in made:
        each.listen()
    return made


def _bound_to_all(host: str, port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for at in addresses_of(host, port):
            try:
                made.append(_bound(at, made[0].getsockname()[1] if made else port))
            except OSError as failure:
                if failure.errno not in NOT_HERE:
                    raise
                missing = failure
                log.info("%s is left out of the addresses of %s: %s", at.address[0], host, failure.strerror)
                continue
            if at.dualstack:
                break
    except BaseException:
        for each in made:
            each.close()
        raise
    if not made:
        assert missing is not None, "a host without an address"
        raise missing
    return made


def _bound(at: ListeningAt, port: int) -> socket.socket:
    made = socket.socket(at.family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if at.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if at.dualstack else 1)
        made.setblocking(False)
        made.bind((at.address[0], port, *at.address[2:]))
    except OSError as failure:
        made.close()
        raise OSError(failure.errno, f"{failure.strerror} ({at.address[0]})") from None
    return made


def shown(sockets: list[socket.socket]) -> list[str]:
    """Return the bound addresses as text, for a log line."""
    found = []
    for each in sockets:
        address = str(each.getsockname()[0])
        if address == "::" and not each.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            found.append("0.0.0.0")
        found.append(address)
    return found
