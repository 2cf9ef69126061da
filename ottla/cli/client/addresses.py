"""Reads "host:port,host:port" as users write it."""

from __future__ import annotations

from ottla.cli.errors import USAGE, CommandFailed

DEFAULT_PORT = 9092
Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """Return the addresses; a port may be left out, IPv6 hosts stand in brackets."""
    found = [_parse_one(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise CommandFailed(f"bootstrap servers {text!r} name no address", "write -b HOST:PORT", USAGE)
    return found


def _parse_one(part: str) -> Address:
    # The form of Kafka's listeners is understood too: PLAINTEXT://host:port.
    scheme, _, rest = part.rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or scheme not in ("", "PLAINTEXT"):
        raise CommandFailed(f"bootstrap server {part!r} is not HOST:PORT", "for example -b localhost:9092", USAGE)
    return host, int(port)
