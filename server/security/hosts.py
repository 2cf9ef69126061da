"""Hosts of access control entries: an address, a network as address/bits (KIP-1276), or * for all."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

CIDR = "/"
#: Networks that are kept parsed; one that is not costs some 10 us.
NETWORKS_MAX = 4_096


def is_in_network(host: str, network: str) -> bool:
    """Whether the address is in the network; what is none of these is not."""
    parsed = read_network(network)
    if parsed is None:
        return False
    try:
        return ip_address(host) in parsed
    except ValueError:
        return False


@lru_cache(NETWORKS_MAX)
def read_network(text: str) -> IPv4Network | IPv6Network | None:
    """None for what is no network. Bits behind the prefix are ignored, as in Kafka."""
    address, _, bits = text.partition(CIDR)
    if not bits.isascii() or not bits.isdecimal():
        return None  # Python would also take a netmask
    try:
        return ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def java_host(host: str) -> str:
    """Formats an address as in Java and in entries: IPv6 in full, without leading zeros or "::"."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
