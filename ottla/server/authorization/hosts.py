"""Hosts of access control entries: an address, a network as address/bits (KIP-1276), or * for all."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

CIDR = "/"
#: The limit of cached networks. Parsing one takes some 10 us.
NETWORKS_MAX = 4_096


def is_in_network(host: str, network: str) -> bool:
    """Returns True if the address is in the network; False if one of the two is malformed."""
    parsed = read_network(network)
    if parsed is None:
        return False
    try:
        return ip_address(host) in parsed
    except ValueError:
        return False


@lru_cache(NETWORKS_MAX)
def read_network(text: str) -> IPv4Network | IPv6Network | None:
    """Parses a network; returns None if the text is no network. Bits after the prefix are ignored, as in Kafka."""
    address, _, bits = text.partition(CIDR)
    if not bits.isascii() or not bits.isdecimal():
        return None  # Python would accept a netmask, too
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
