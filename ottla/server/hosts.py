"""The Host header of HTTP: a request with a name that an HTTP server does not know comes from a page of another site.

If a page's name points at this machine for a moment (DNS rebinding), the browser takes a server here for the same site: only
the name in the Host header shows the difference. A number cannot point elsewhere, so addresses are always accepted.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import ip_address

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: No one can own a name with these endings (RFC 6761, RFC 6762, and .internal, which ICANN keeps free). Docker's
#: host.docker.internal is such a name.
_RESERVED = (".localhost", ".local", ".internal")


def host_name(host: str) -> str:
    """Return the name of a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener at this host."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_known(header: str, names: Collection[str]) -> bool:
    """Return whether a Host header is an address, or one of these names in lower case."""
    name = host_name(header)
    return name in names or is_address(name)


def is_of_this_network(header: str, host: str) -> bool:
    """Return whether a Host header may come from a monitoring system: it is an address, the listener's host, a name of this
    machine, or a name that no one elsewhere can own.
    """
    name = host_name(header)
    return is_known(header, {host.lower(), socket.gethostname().lower()}) or "." not in name or name.endswith(_RESERVED)
