"""HOST:PORT as people, property files and Kafka's clients write it. This is the only parser of addresses.

Kafka's clients take `PROTOCOL://host:port` as well (org.apache.kafka.common.utils.Utils.getHost), because advertised listeners
are written so; the protocol of a connection comes from its own property. An IPv6 address stands in brackets, because without
them the last group of `::1` could be the port.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PORT_MAX = 65_535
#: The part of an address that is wrong.
HOST_NAME, HOST_PORT, PORT_BOUNDS = "host name", "host port", "the port's bounds"
_FORM = re.compile(
    r"(?:[0-9A-Za-z_.%-]*://)?(?:\[(?P<ipv6>[0-9A-Za-z:.%_-]+)\]|(?P<name>[^\[\]\s:/]*))(?::(?P<port>[0-9]{1,9}))?"
)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NoAddress(ValueError):
    """A text is no address.

    The message is a sentence that quotes the text; `part` is the wrong part, as Kafka's messages name it.
    """

    def __init__(self, message: str, part: str = HOST_NAME) -> None:
        super().__init__(message)
        self.part = part


def parse_address(text: str, default_port: int | None = None, *, any_host: bool = False, port_min: int = 1) -> Address:
    """Return the address of `HOST:PORT`, `[IPV6]:PORT` or `PROTOCOL://HOST:PORT`.

    Args:
        default_port: the port of an address without one; None: it must have one.
        any_host: the host may be empty, which means all addresses of this machine.
        port_min: 0 if a listener may take any free port.

    Raises:
        NoAddress: the text has another form, or the port is not from `port_min` to 65535.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        if text.count(":") > 1 and "[" not in text and "//" not in text:
            raise NoAddress(f"{text!r} is not HOST:PORT: an IPv6 address stands in brackets, for example [::1]:9092")
        before, _, after = text.rpartition(":")
        raise NoAddress(f"{text!r} is not HOST:PORT", HOST_PORT if before and not after.isdecimal() else HOST_NAME)
    host = found["ipv6"] or found["name"]
    if not host and not any_host:
        raise NoAddress(f"{text!r} is not HOST:PORT: it names no host")
    if found["port"] is None and default_port is None:
        raise NoAddress(f"{text!r} is not HOST:PORT: it has no port")
    port = int(found["port"]) if found["port"] else default_port or 0
    if not port_min <= port <= PORT_MAX:
        raise NoAddress(f"the port of {text!r} is not from {port_min} to {PORT_MAX}", PORT_BOUNDS)
    return Address(host, port)


def parse_addresses(text: str, default_port: int | None = None) -> list[Address]:
    """Return the addresses in a list with commas, such as `bootstrap.servers`. Empty entries are left out.

    Raises:
        NoAddress: an entry is no address.
    """
    return [parse_address(part, default_port) for part in text.split(",") if part.strip()]
