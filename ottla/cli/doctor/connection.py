"""The client's side of `ottla doctor`: each step from this machine to each broker, and the finding if it fails.

Each address is looked at alone, before the cluster client connects: a client goes on to the next server, which hides the step
that failed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address

from ottla.cli.doctor.findings import DoctorFinding
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import MetadataResponseBroker
from ottla.protocol.releases import COMMAND_SOFTWARE
from ottla.server.address import Address
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import ChannelClosed, SecurityRejected
from ottla.server.world import World

CLIENT_ID = "ottla-doctor"
#: The longest time for a step: a broker that takes longer to accept a connection is not reachable for its clients either.
STEP_S_MAX = 5.0
EXPIRY_DAYS_MIN = 30
DAY_S = 86_400

Passed = Callable[[str], None]


class ConnectionsLook:
    """The steps of connections with one security. `passed` is called with a line for each step that succeeded."""

    def __init__(self, world: World, security: PeerSecurity, timeout_ms: int, passed: Passed) -> None:
        self.world, self.security, self.passed = world, security, passed
        self.step_s = min(timeout_ms / 1000, STEP_S_MAX)

    async def bootstrap(self, address: Address) -> list[DoctorFinding]:
        """Check a bootstrap server. There are no findings if it speaks Kafka's protocol."""
        host, port = address
        where = f"{host}:{port}"
        addresses = await self._resolved(host, port)
        if not addresses:
            return [DoctorFinding("name-not-resolved", where, f"no address for {host}")]
        if fault := await self._not_reachable(host, port):
            return [DoctorFinding("not-reachable", where, fault)]
        partly = await self._partly_reachable(where, addresses, port)
        found, line = await self._kafka(where, host, port, None)
        if line is not None:
            self.passed(f"{where} is {', '.join(addresses)}, takes connections and {line}")
        return partly + found

    async def advertised(self, broker: MetadataResponseBroker, bootstrap: list[Address]) -> list[DoctorFinding]:
        """Check the address that a broker advertises: clients connect to it, and not to the bootstrap server."""
        host, port = broker.host, broker.port
        where = f"broker {broker.node_id} ({host}:{port})"
        addresses = await self._resolved(host, port)
        if not addresses:
            return [DoctorFinding("advertised-not-resolved", where, f"no address for {host}")]
        if any(map(is_loopback, addresses)) and not await self._is_here(bootstrap):
            return [DoctorFinding("advertised-loopback", where, f"{host} is {', '.join(addresses)}: this machine")]
        if fault := await self._not_reachable(host, port):
            return [DoctorFinding("advertised-not-reachable", where, fault)]
        partly = await self._partly_reachable(where, addresses, port)
        found, line = await self._kafka(where, host, port, broker.node_id)
        if line is not None:
            self.passed(f"{where} {line}")
        return partly + found

    # -- Steps ---------------------------------------------------------------------------------------------------------

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            async with asyncio.timeout(self.step_s):
                rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # 1: TCP
        except (OSError, TimeoutError, UnicodeError):
            return []
        return sorted({str(row[4][0]) for row in rows})

    async def _partly_reachable(self, where: str, addresses: list[str], port: int) -> list[DoctorFinding]:
        """Check each address of a name that is reachable: a client may try only one of them."""
        faults = {each: await self._not_reachable(each, port) for each in addresses if len(addresses) > 1}
        return [
            DoctorFinding("address-not-reachable", where, f"{each}: {fault}") for each, fault in faults.items() if fault
        ]

    async def _is_here(self, bootstrap: list[Address]) -> bool:
        """Return whether the bootstrap servers are on this machine, too: then a loopback address is right."""
        found = [each for address in bootstrap for each in await self._resolved(*address)]
        return any(map(is_loopback, found))

    async def _not_reachable(self, host: str, port: int) -> str | None:
        """Return why a connection cannot be made, or None if it can."""
        try:
            async with asyncio.timeout(self.step_s):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return f"no answer within {self.step_s:g} s"
        except OSError as fault:
            return os.strerror(fault.errno) if fault.errno is not None and fault.errno > 0 else str(fault)
        writer.close()
        return None

    async def _kafka(
        self, where: str, host: str, port: int, node: int | None
    ) -> tuple[list[DoctorFinding], str | None]:
        """Return the findings of the protocol's first messages, and a line about the broker if it speaks the protocol."""
        found = await self._certificate(where, host, port)
        channel = Channel(self.world, host, port, CLIENT_ID, self.security, COMMAND_SOFTWARE)
        began_ns = self.world.clock.mono_ns()
        try:
            async with asyncio.timeout(self.step_s):
                versions = await channel.versions()
        except TimeoutError:
            return [*found, DoctorFinding("no-kafka", where, f"no answer within {self.step_s:g} s")], None
        except SecurityRejected as fault:
            kind = "login-rejected" if "login" in str(fault) else "tls-rejected"
            return [*found, DoctorFinding(kind, where, str(fault))], None
        except ChannelClosed as fault:
            speaks_tls = self.security.tls is None and await self._peer_certificate(host, port) is not None
            return [*found, DoctorFinding("speaks-tls" if speaks_tls else "no-kafka", where, str(fault))], None
        finally:
            channel.close()
        if node is not None and ApiKey.CONSUMER_GROUP_HEARTBEAT not in versions:
            found.append(DoctorFinding("broker-too-old", where, "it does not serve ConsumerGroupHeartbeat (KIP-848)"))
        took_ms = (self.world.clock.mono_ns() - began_ns) / 1e6
        return found, f"speaks Kafka ({len(versions)} APIs, {took_ms:.1f} ms with{self._with()})"

    def _with(self) -> str:
        steps = [
            name for name, part in (("TLS", self.security.tls), ("a login", self.security.login)) if part is not None
        ]
        return " " + " and ".join(steps) if steps else "out TLS and login"

    # -- Certificates --------------------------------------------------------------------------------------------------

    async def _certificate(self, where: str, host: str, port: int) -> list[DoctorFinding]:
        if self.security.tls is None:
            return []
        data = await self._peer_certificate(host, port)
        return [] if data is None else expiry(where, data, self.world.clock.wall_ms())

    async def _peer_certificate(self, host: str, port: int) -> bytes | None:
        """Return the certificate of a listener, whichever authority has signed it; None if the listener does not speak TLS."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            async with asyncio.timeout(self.step_s):
                _, writer = await asyncio.open_connection(host, port, ssl=context)
        except (OSError, TimeoutError):
            return None
        secured = writer.get_extra_info("ssl_object")
        data: bytes | None = secured.getpeercert(binary_form=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return data


def expiry(where: str, certificate: bytes, now_ms: int) -> list[DoctorFinding]:
    """Return the finding about a certificate (DER) that expires soon. One that has expired makes the handshake fail."""
    from cryptography.x509 import load_der_x509_certificate

    until = load_der_x509_certificate(certificate).not_valid_after_utc
    days = (until - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() / DAY_S
    if days >= EXPIRY_DAYS_MIN:
        return []
    return [
        DoctorFinding(
            "certificate-expires", where, f"valid until {until:%Y-%m-%d %H:%M} UTC, {max(0.0, days):.0f} days"
        )
    ]


def is_loopback(address: str) -> bool:
    """Return whether an address is this machine's own."""
    return ip_address(address.partition("%")[0]).is_loopback
