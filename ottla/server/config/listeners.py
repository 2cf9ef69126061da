"""Parsers of `listeners`, `advertised.listeners`, the security protocol map and the quorum's addresses, with Kafka's rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple

from ottla.protocol.slotted import frozen
from ottla.server.address import PORT_MAX, parse_address
from ottla.server.config.key import ConfigError, Values, shown
from ottla.server.listening import of_every_family

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,5})")
ANY_ADDRESS = "0.0.0.0"


@frozen
class Endpoint:
    """One entry of `listeners`, with the entry of `advertised.listeners` for it, if there is one."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"
    advertised_host: str | None = None
    advertised_port: int | None = None


class VoterAddress(NamedTuple):
    """One entry of controller.quorum.voters."""

    id: int
    host: str
    port: int


def protocol_map(text: str, controller_names: Sequence[str]) -> dict[str, str]:
    """Return listener name -> security protocol. Controllers' listeners are plaintext unless the map has custom entries."""
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        listener, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(name, text, f"{entry} is not of the form NAME:PROTOCOL", f"for example {entry}:PLAINTEXT")
        if protocol not in SECURITY_PROTOCOLS:
            message = f"Invalid security protocol `{protocol}` defined in {name}"
            raise ConfigError(name, protocol, "", f"one of {', '.join(SECURITY_PROTOCOLS)}", message=message)
        protocols[listener.strip().upper()] = protocol
    if set(protocols) <= set(SECURITY_PROTOCOLS):
        for listener in controller_names:
            protocols.setdefault(listener.upper(), "PLAINTEXT")
    return protocols


def _parse(name: str, entries: Sequence[str]) -> list[Endpoint]:
    listeners = []
    for entry in entries:
        match = LISTENER.fullmatch(entry)
        if match is None or not -1 <= int(match.group(3)) <= PORT_MAX:
            why = f"Unable to parse {entry} to a broker endpoint"
            raise ConfigError(name, shown(list(entries)), why, "NAME://host:port, such as PLAINTEXT://:9092")
        listeners.append(Endpoint(match.group(1).upper(), match.group(2), int(match.group(3))))
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        why = f"Each listener must have a different name, {name}: {', '.join(entries)}"
        raise ConfigError(name, shown(list(entries)), why)
    return listeners


def _check_ports(entries: Sequence[str], listeners: Sequence[Endpoint]) -> None:
    """Check for duplicate ports.

    Two listeners may share a port only if one has an IPv4 and the other an IPv6 address; port 0 means any free port.
    """
    by_port: dict[int, list[Endpoint]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, same in by_port.items():
        families = sorted(_family(listener.host) for listener in same)
        if len(same) > 1 and families != [4, 6]:
            why = f"Each listener must have a different port, port {port} is used by {len(same)}"
            raise ConfigError("listeners", shown(list(entries)), why)


def _family(host: str) -> int:
    try:
        return ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def read_endpoints(values: Values) -> tuple[Endpoint, ...]:
    """Return every listener of the node with its protocol and, if it has one, its advertised address."""
    entries = values["listeners"]
    listeners = _parse("listeners", entries)
    _check_ports(entries, listeners)
    protocols = protocol_map(values["listener.security.protocol.map"], values["controller.listener.names"])
    for listener in listeners:
        if listener.name not in protocols:
            why = f"No security protocol defined for listener {listener.name}"
            tip = f"add {listener.name}:PLAINTEXT (or another protocol) to listener.security.protocol.map"
            raise ConfigError("listeners", shown(entries), why, tip)
    advertised = _read_advertised(values, {listener.name for listener in listeners})
    ports = Counter(listener.port for listener in listeners if listener.port != 0)
    endpoints = []
    for listener in listeners:
        shown_as = advertised.get(listener.name)
        endpoints.append(
            replace(
                listener,
                # Two listeners that share a port have one address family each.
                host=listener.host if ports[listener.port] > 1 else of_every_family(listener.host),
                security_protocol=protocols[listener.name],
                advertised_host=None if shown_as is None else shown_as.host,
                advertised_port=None if shown_as is None else shown_as.port,
            )
        )
    return tuple(endpoints)


def _read_advertised(values: Values, known: set[str]) -> dict[str, Endpoint]:
    name = "advertised.listeners"
    entries = values[name]
    if entries is None:
        return {}
    advertised = {listener.name: listener for listener in _parse(name, entries)}
    for listener in advertised.values():
        if listener.host == ANY_ADDRESS:
            why = f"{name} cannot use the nonroutable meta-address {ANY_ADDRESS}. Use a routable IP address."
            tip = f"leave {listener.name} out of {name}: clients then get the address to which they connected"
            raise ConfigError(name, shown(entries), why, tip)
        if listener.name not in known:
            listed = ", ".join(sorted(known))
            why = f"{listener.name} is not among the listeners {listed}"
            raise ConfigError(name, shown(entries), why, f"give {listener.name} an entry in `listeners`")
    # An empty host also means the address to which the client connected.
    return {listener.name: listener for listener in advertised.values() if listener.host}


def read_voters(entries: Sequence[str]) -> tuple[VoterAddress, ...]:
    """Parse controller.quorum.voters. Its rule has already checked the form."""
    voters = []
    for entry in entries:
        node_id, _, address = entry.partition("@")
        voters.append(VoterAddress(int(node_id), *parse_address(address)))
    return tuple(voters)
