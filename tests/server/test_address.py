"""Addresses as people and property files write them."""

from __future__ import annotations

import pytest

from ottla.client.cluster import parse_bootstrap
from ottla.client.errors import ClusterError
from ottla.server.address import PORT_MAX, NoAddress, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("kafka-1:9092", "kafka-1", 9092),
        (" 10.0.0.1:9092 ", "10.0.0.1", 9092),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("PLAINTEXT://kafka-1:9092", "kafka-1", 9092),
        ("SASL_SSL://[2001:db8::1]:9093", "2001:db8::1", 9093),
        ("MY-LISTENER://h:1", "h", 1),
        (f"h:{PORT_MAX}", "h", PORT_MAX),
        ("h", "h", 7),
        ("[::1]", "::1", 7),
    ],
)
def test_an_address_of_any_protocol_is_its_host_and_port(text: str, host: str, port: int) -> None:
    found = parse_address(text, 7)
    assert found == (host, port)
    assert parse_address(str(found)) == found, "an address is printed as it is read"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("::1", r"brackets, for example \[::1\]:9092"),
        ("2001:db8::1:9092", "brackets"),
        ("h:0", "is not from 1 to 65535"),
        (f"h:{PORT_MAX + 1}", "is not from 1 to 65535"),
        ("h:123456789012", "is not HOST:PORT"),
        ("h:+1", "is not HOST:PORT"),
        ("h:٣", "is not HOST:PORT"),
        (":9092", "names no host"),
        ("h", "has no port"),
        ("h:", "is not HOST:PORT"),
        ("http://h:80/path", "is not HOST:PORT"),
        ("a b:1", "is not HOST:PORT"),
        ("[h:1", "is not HOST:PORT"),
        ("", "names no host"),
    ],
)
def test_another_form_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(NoAddress, match=why):
        parse_address(text)


def test_a_listener_may_have_any_host_and_any_port() -> None:
    assert parse_address(":0", any_host=True, port_min=0) == ("", 0)


def test_a_list_of_stock_property_files_is_read_by_commands_and_connector_alike() -> None:
    text = "SSL://a:1, [::1]:2,b:3,"
    assert parse_addresses(text) == parse_bootstrap(text) == [("a", 1), ("::1", 2), ("b", 3)]
    with pytest.raises(ClusterError, match="brackets"):
        parse_bootstrap("::1")
