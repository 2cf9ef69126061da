"""Hosts of access control entries: addresses and networks (KIP-1276)."""

from __future__ import annotations

import pytest

from ottla.server.authorization.acl import NETWORKS_MAX, is_in_network, read_network


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.0.0.0/8"),
        ("192.168.1.200", "192.168.1.128/25"),
        ("192.168.1.200", "192.168.1.130/25"),
        ("10.0.0.1", "10.0.0.1/32"),
        ("0:0:0:0:0:0:0:1", "::/0"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::/32"),
    ],
)
def test_an_address_is_in_its_network(host: str, network: str) -> None:
    assert is_in_network(host, network)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("11.1.2.3", "10.0.0.0/8"),
        ("10.0.0.1", "::/0"),
        ("0:0:0:0:0:0:0:1", "0.0.0.0/0"),
        ("10.0.0.1", "10.0.0.0/33"),
        ("10.0.0.1", "10.0.0.0/"),
        ("10.0.0.1", "10.0.0.0/255.0.0.0"),
        ("10.0.0.1", "10.0.0.0/+8"),
        ("10.0.0.1", "10.0.0.0/\u0668"),
        ("", "10.0.0.0/8"),
        ("a.host", "10.0.0.0/8"),
    ],
)
def test_others_are_not_in_it_and_what_is_no_network_has_none(host: str, network: str) -> None:
    assert not is_in_network(host, network)


def test_parsed_networks_have_a_bound() -> None:
    for number in range(NETWORKS_MAX + 10):
        read_network(f"10.{number >> 8}.{number & 255}.0/24")
    assert read_network.cache_info().currsize == NETWORKS_MAX
