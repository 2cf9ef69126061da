"""GSSAPI without a KDC: the security layers (RFC 4752), and a node without the optional library."""

from __future__ import annotations

import sys

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.installation import install
from ottla.server.sasl import gssapi
from ottla.server.sasl.gssapi import check_choice, choice, offer

JAAS = "listener.name.clients.gssapi.sasl.jaas.config"
OPTIONS = {"useKeyTab": "true", "keyTab": "/etc/kafka.keytab", "principal": "kafka/host@REALM"}
VALUES = {"sasl.kerberos.service.name": "kafka", "sasl.kerberos.principal.to.local.rules": ["DEFAULT"]}


def test_the_server_offers_no_layer_and_javas_size() -> None:
    assert offer() == b"\x01\x01\x00\x00"


def test_a_client_takes_no_layer_and_names_itself() -> None:
    assert choice(b"\x07\x01\x00\x00", "alice@REALM") == b"\x01\x00\x00\x00alice@REALM"
    check_choice(b"\x01\x00\x00\x00alice@REALM")


@pytest.mark.parametrize("message", [b"", b"\x01\x00\x00", b"\x02\x00\xff\xff", b"\x04\x00\xff\xffname", bytes(4)])
def test_a_client_that_wants_a_security_layer_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"the client's choice|unsupported protection"):
        check_choice(message)


@pytest.mark.parametrize("message", [b"", b"\x01\x00\x00", b"\x06\x00\xff\xff", b"\x01\x00\x00\x00more"])
def test_a_server_without_the_layer_of_none_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|asks for a security layer"):
        choice(message, "alice@REALM")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    tickets = {"useTicketCache": "true"}
    for begin in (
        lambda: gssapi.mechanism(JAAS, OPTIONS, VALUES),
        lambda: gssapi.client("sasl.enabled.mechanisms", JAAS, OPTIONS, VALUES),
        lambda: gssapi.command("sasl.enabled.mechanisms", tickets, VALUES),
    ):
        with pytest.raises(ConfigError, match="the optional library is missing") as refused:
            begin()
        assert refused.value.name == "sasl.enabled.mechanisms"
        assert install("gssapi") in refused.value.what_to_try


def test_without_a_services_name_nodes_could_not_find_each_other() -> None:
    with pytest.raises(ConfigError, match="No serviceName defined in either JAAS or Kafka config"):
        gssapi.service_name(JAAS, OPTIONS, {"sasl.kerberos.service.name": None})
    assert gssapi.service_name(JAAS, OPTIONS | {"serviceName": "kafka"}, VALUES) == "kafka"
