"""Shared by the stand-ins for Kafka's tools: parsing with Kafka's exit code, client properties files, and a cluster client for one command."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from ottla.cli.client.addresses import parse_bootstrap
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.errors import CommandFailed
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import RealWorld, World

#: The time limit of an admin client's call, default.api.timeout.ms.
TIMEOUT_MS = 60_000


class Parser(argparse.ArgumentParser):
    """Kafka's tools take no abbreviations, and end with 1 for a wrong usage."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False)
        self.add_argument("--version", action="store_true", help="Display Kafka version.")

    def error(self, message: str) -> NoReturn:
        print(message, file=sys.stderr)
        self.print_help(sys.stderr)
        raise SystemExit(1)

    def add_bootstrap(self, *, required: bool = True) -> None:
        self.add_argument(
            "--bootstrap-server", "--broker-list", required=required, metavar="HOST:PORT", dest="bootstrap_server"
        )
        self.add_argument(
            "--command-config", "--consumer.config", "--producer.config", metavar="FILE", dest="command_config"
        )

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        if "--version" in arguments:
            from importlib.metadata import version

            print(f"4.3.1 (Ottla {version('ottla')})")
            raise SystemExit(0)
        parsed = self.parse_args(arguments)
        path = getattr(parsed, "command_config", None)
        parsed.client_properties = read_client_properties(path) if path else {}
        return parsed


def read_client_properties(path: str) -> dict[str, str]:
    from ottla.server.config.load import read_properties

    try:
        with open(path, "rb") as file:
            return read_properties(file.read(), path)
    except (OSError, ValueError) as fault:
        print(f"{path}: {fault}", file=sys.stderr)
        raise SystemExit(1) from None


def pairs(values: list[str] | None) -> dict[str, str]:
    """--property key=value, and comma-separated lists of it as the tools take them."""
    found = {}
    for text in values or []:
        for part in text.split(",") if text.count("=") > 1 else [text]:
            key, equals, value = part.partition("=")
            if not equals:
                print(f"Invalid command line properties: {text}", file=sys.stderr)
                raise SystemExit(1)
            found[key.strip()] = value
    return found


def with_cluster(
    options: argparse.Namespace,
    work: Callable[[ClusterClient], Awaitable[int]],
    timeout_ms: int = TIMEOUT_MS,
    *,
    limited: bool = True,
) -> int:
    """Run the coroutine on a cluster client, which connects as --command-config says.

    Raises:
        CommandFailed: also when time is up.
    """

    async def run() -> int:
        addresses = parse_bootstrap(options.bootstrap_server)
        real = RealWorld(asyncio.get_running_loop())
        try:
            security = _security(real.world, options)
        except CommandFailed:
            await real.close()
            raise
        cluster = ClusterClient(real.world, addresses, timeout_ms, security)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if limited else None):
                return await work(cluster)
        except TimeoutError:
            raise CommandFailed(f"Timed out waiting for a node assignment. Call: {cluster.doing}") from None
        finally:
            with suppress(Exception):
                await cluster.close()
            await real.close()

    return asyncio.run(run())


def _security(world: World, options: argparse.Namespace) -> PeerSecurity:
    if not options.client_properties:
        return PLAINTEXT
    # Not at the top: the tables of Kafka's properties and the mechanisms are slow to import.
    from ottla.cli.client.security import peer_security

    return peer_security(world, options.client_properties, options.command_config)


def reason(failure: CommandFailed) -> str:
    """Returns the broker's message, without the location in front and the error code after it."""
    text = failure.cause
    if failure.code is not None:
        text = text.rpartition(" (")[0].partition(": ")[2] or text
    return text
