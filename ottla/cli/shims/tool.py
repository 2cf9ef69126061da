"""Shared by the stand-ins for Kafka's tools: parsing with Kafka's exit code, client properties files, and a cluster client for one command."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.connection import TimeUp, open_cluster, read_client_properties
from ottla.cli.errors import CommandFailed

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

            from ottla.protocol.releases import RELEASES

            print(f"{next(iter(RELEASES))} (Ottla {version('ottla')})")
            raise SystemExit(0)
        parsed = self.parse_args(arguments)
        parsed.client_properties = client_properties(getattr(parsed, "command_config", None))
        return parsed


def client_properties(path: str | None) -> dict[str, str]:
    """Read the file, or end the tool with 1 as Kafka's do."""
    try:
        return {} if path is None else read_client_properties(path)
    except CommandFailed as failure:
        print(failure.cause, file=sys.stderr)
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
        servers, path = options.bootstrap_server, options.command_config
        async with open_cluster(servers, options.client_properties, path, timeout_ms, limited=limited) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(run())
    except TimeUp as end:
        raise CommandFailed(f"Timed out waiting for a node assignment. Call: {end.doing}") from None


def reason(failure: CommandFailed) -> str:
    """Returns the broker's message, without the location in front and the error code after it."""
    text = failure.cause
    if failure.code is not None:
        text = text.rpartition(" (")[0].partition(": ")[2] or text
    return text
