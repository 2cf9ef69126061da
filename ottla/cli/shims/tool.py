"""The common parts of the stand-ins for Kafka's tools: parsing with Kafka's messages, client properties files, and a cluster client.

Kafka's older tools parse with jopt-simple, whose rules and messages `Parser` has. The newer ones have subcommands, and parse
with argparse4j, a translation of Python's argparse; `TreeParser` stands for it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import reason
from ottla.client.cluster import ClusterClient
from ottla.client.connection import TimeUp, open_cluster, read_client_properties
from ottla.client.failures import Failure

#: The time limit of an admin client's call, default.api.timeout.ms.
TIMEOUT_MS = 60_000
#: Earlier names of --command-config.
OLD_CONFIGS = ("consumer_config", "producer_config", "admin_config")
#: Options that set single client properties. They win over the properties of the file.
PROPERTY_OPTIONS = ("consumer_property", "producer_property", "command_property")
#: Messages of argparse about mistakes, and jopt-simple's messages in their place.
_MISTAKES = (
    (re.compile(r"unrecognized arguments: --([\w.-]+).*"), r"\1 is not a recognized option"),
    (re.compile(r"unrecognized arguments: (\S+).*"), r"\1 is not a recognized option"),
    (re.compile(r"argument --([\w.-]+).*: expected one argument"), r"Option \1 requires an argument"),
    (re.compile(r"argument --([\w.-]+).*: invalid .*: ('.*').*"), r"Cannot parse argument \2 of option \1"),
)


class Unusable(Exception):
    """An option, a value or a file that cannot be used; its text is Kafka's message."""


#: A 64-bit number does not have more digits. (Python's int would also take blanks and underscores.)
_INTEGER = re.compile(r"[+-]?0*\d{1,20}", re.ASCII)
_HOST_PORT = re.compile(r"(?:[\w%.-]*://)?\[?([\w%.:-]*)\]?:\d+", re.ASCII)


class ToolParser(argparse.ArgumentParser):
    """The options of one tool. `mistakes` is printed before the message about a mistake in the command line."""

    def __init__(self, name: str, description: str, mistakes: str = "") -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False, add_help=False)
        self.mistakes = mistakes
        self.missing_bootstrap = 'Missing required argument "[bootstrap-server]"'
        self.flags("version", "help")

    def flags(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}", action="store_true")

    def texts(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}")

    def lists(self, *names: str) -> None:
        """Add options that may be repeated."""
        for name in names:
            self.add_argument(f"--{name}", action="append", default=[])

    def numbers(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}", type=int32)

    def add_bootstrap(self, *, controller: bool = False, old_names: Sequence[str] = ()) -> None:
        """Add the options for the servers and the client properties. `old_names` are spellings that Kafka deprecates or had."""
        self.add_argument("--bootstrap-server", "--broker-list", dest="bootstrap_server")
        if controller:
            self.add_argument("--bootstrap-controller", dest="bootstrap_controller")
        self.add_argument("--command-config", dest="command_config")
        for name in old_names:
            self.add_argument(name, dest=name.strip("-").replace(".", "_").replace("-", "_"))

    def error(self, message: str) -> NoReturn:
        """End the tool for an error that argparse has found, with the message of jopt-simple."""
        for pattern, text in _MISTAKES:
            if found := pattern.fullmatch(message):
                message = found.expand(text)
                break
        print(f"{self.mistakes}{message}", file=sys.stderr)
        raise SystemExit(1)

    def usage_error(self, message: str) -> NoReturn:
        """Print which options do not go together, and the help."""
        print(message, file=sys.stderr)
        self.print_help(sys.stderr)
        raise SystemExit(1)

    def parse(self, arguments: list[str], *, bootstrap: bool = True) -> argparse.Namespace:
        """Parse the arguments. --help, --version and a missing --bootstrap-server are handled as in Kafka's tools.

        Words without an option are ignored.
        """
        options, words = self.parse_known_args(self._joined(arguments))
        if unknown := [word for word in words if word.startswith("-") and word.strip("-")]:
            self.error(f"unrecognized arguments: --{unknown[0].lstrip('-').partition('=')[0]}")
        if not arguments or options.help:
            self.usage_error(self.description or "")
        if options.version:
            from ottla.protocol.releases import RELEASES

            print(next(iter(RELEASES)))
            raise SystemExit(0)
        if bootstrap:
            self.connect(options)
        return options

    def connect(self, options: argparse.Namespace) -> None:
        """Print an error if the address is missing, and read the client properties."""
        controllers = getattr(options, "bootstrap_controller", None)
        if options.bootstrap_server is None and controllers is None:
            self.usage_error(self.missing_bootstrap)
        options.bootstrap_server = options.bootstrap_server or controllers
        old = (getattr(options, name, None) for name in OLD_CONFIGS)
        options.command_config = options.command_config or next(filter(None, old), None)
        options.file_properties = client_properties(options.command_config)
        texts = [text for name in PROPERTY_OPTIONS for text in getattr(options, name, ())]
        options.client_properties = options.file_properties | key_values(texts)

    def check_servers(self, text: str) -> None:
        """Reject addresses without a port, which only some of Kafka's tools do."""
        addresses = text.rstrip(",").split(",")
        if not all(_HOST_PORT.fullmatch(address) for address in addresses):
            self.usage_error("Please provide valid host:port like host1:9091,host2:9092")

    def require(self, options: argparse.Namespace, *names: str) -> None:
        for name in names:
            if not given(options, name):
                self.usage_error(f'Missing required argument "[{name}]"')

    def forbid(self, options: argparse.Namespace, used: str, *others: str) -> None:
        """Reject the options `others` if the option `used` is given."""
        for name in others if given(options, used) else ():
            if given(options, name):
                self.usage_error(f'Option "[{used}]" can\'t be used with option "[{name}]"')

    def _joined(self, arguments: list[str]) -> list[str]:
        """Join each option with its argument, which may begin with a dash: argparse would not allow that."""
        takes_one = {name for action in self._actions if action.nargs is None for name in action.option_strings}
        words: list[str] = []
        left = iter(arguments)
        for word in left:
            follower = next(left, None) if word in takes_one else None
            words.append(word if follower is None else f"{word}={follower}")
        return words


class TreeParser(argparse.ArgumentParser):
    """A parser with subcommands. It ends with 1, also after its help, as argparse4j does."""

    help_code = 1

    def __init__(self, prog: str, description: str | None = None, **others: object) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog.split()[0]}: error: {self.translated(message)}", file=sys.stderr)
        raise SystemExit(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(status or self.help_code, message)

    def translated(self, message: str) -> str:
        """Return the message in argparse4j's words."""
        message = re.sub("the following arguments are required: (-.*)", r"argument \1 is required", message)
        message = re.sub("unrecognized arguments: (.*)", r"unrecognized arguments: '\1'", message)
        return re.sub("the following arguments are required: .*", "too few arguments", message)

    def take_old_config(self, options: argparse.Namespace, name: str) -> argparse.Namespace:
        """Use the file of the deprecated option --`name`, with Kafka's warning."""
        if options.old_config is not None and options.command_config is not None:
            self.error(f"Options --{name} and --command-config are mutually exclusive.")
        if options.old_config is not None:
            print(
                f"Option --{name} has been deprecated and will be removed in a future version. Use --command-config instead."
            )
            options.command_config = options.old_config
        return options

    def add_bootstrap(self, *, required: bool = True) -> None:
        servers = self.add_mutually_exclusive_group(required=required)
        servers.add_argument("--bootstrap-server", "-b", dest="bootstrap_server")
        servers.add_argument("--bootstrap-controller", "-C", dest="bootstrap_controller")
        self.add_argument("--config", "--command-config", "-c", dest="command_config")


class HelpfulParser(TreeParser):
    """A parser of the tools that end with 0 after their help."""

    help_code = 0


def connected(options: argparse.Namespace) -> argparse.Namespace:
    """Add to the options of a TreeParser what `with_cluster` needs."""
    options.bootstrap_server = options.bootstrap_server or getattr(options, "bootstrap_controller", None)
    options.client_properties = client_properties(options.command_config)
    return options


def int32(text: str) -> int:
    """Return the number as Java's Integer.parseInt does. Raise ValueError if it is none, or out of range."""
    return _ranged(text, 31)


def int64(text: str) -> int:
    """Return the number as Java's Long.parseLong does. Raise ValueError if it is none, or out of range."""
    return _ranged(text, 63)


def _ranged(text: str, bits: int) -> int:
    if _INTEGER.fullmatch(text) is None or not -(1 << bits) <= int(text) < 1 << bits:
        raise ValueError(f'For input string: "{text}"')
    return int(text)


def java_split(text: str, separator: str) -> list[str]:
    """Split as Java's String.split does: empty texts at the end are left out."""
    parts = text.split(separator)
    while text and parts and not parts[-1]:
        parts.pop()
    return parts


#: Kafka takes texts of up to this length as a topic id, although an id has fewer characters.
_UUID_CHARS_MAX = 24


def uuid_bytes(text: str) -> bytes:
    """Return the bytes of an id as Java's Uuid.fromString does. Raise ValueError with Kafka's message if it is no id."""
    if len(text) > _UUID_CHARS_MAX:
        raise ValueError(
            f"Input string with prefix `{text[:_UUID_CHARS_MAX]}` is too long to be decoded as a base64 UUID"
        )
    digits = text.rstrip("=")
    if wrong := re.search(r"[^\w-]", digits, re.ASCII):
        raise ValueError(f"Illegal base64 character {ord(wrong[0]):x}")
    if len(digits) % 4 == 1:
        few = len(digits) == 1
        raise ValueError(
            "Input byte[] should at least have 2 bytes for base64 bytes"
            if few
            else "Last unit does not have enough valid bits"
        )
    found = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    if len(found) != 16:
        raise ValueError(
            f"Input string `{text}` decoded as {len(found)} bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID"
        )
    return found


def given(options: argparse.Namespace, name: str) -> bool:
    value = getattr(options, name.replace("-", "_").replace(".", "_"))
    return value is not None and value is not False and value != []


def client_properties(path: str | None) -> dict[str, str]:
    """Read the file, or end the tool with 1 as Kafka's do."""
    try:
        return {} if path is None else read_client_properties(path)
    except Failure as failure:
        print(failure.cause, file=sys.stderr)
        raise SystemExit(1) from None


def key_values(texts: Sequence[str]) -> dict[str, str]:
    """Return the pairs of options such as --property key=value. A key without a value gets an empty value."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def deprecated(options: argparse.Namespace, old: Mapping[str, str], head: str = "Warning:") -> None:
    """Print a warning for each old option that is given, on standard output as Kafka's tools do."""
    for name, new in old.items():
        if given(options, name):
            print(f"{head} --{name} is deprecated and will be removed in a future version. Use --{new} instead.")


def opened(
    options: argparse.Namespace, timeout_ms: int = TIMEOUT_MS, *, limited: bool = False
) -> AbstractAsyncContextManager[ClusterClient]:
    """Connect a cluster client as --command-config says."""
    servers, path = options.bootstrap_server, options.command_config
    return open_cluster(servers, options.client_properties, path, timeout_ms, limited=limited)


def with_cluster(
    options: argparse.Namespace,
    work: Callable[[ClusterClient], Awaitable[int]],
    timeout_ms: int = TIMEOUT_MS,
    *,
    limited: bool = True,
) -> int:
    """Run the coroutine on a cluster client, which connects as --command-config says.

    Raises:
        CommandFailed: the action has failed, or time is up.
    """

    async def run() -> int:
        async with opened(options, timeout_ms, limited=limited) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(run())
    except TimeUp as end:
        raise CommandFailed(f"Timed out waiting for a node assignment. Call: {end.doing}") from None


def run_for_long(options: argparse.Namespace, work: Callable[[ClusterClient], Awaitable[int]]) -> int:
    """Run a tool that goes on until it is done or interrupted.

    The message about a failure is printed without the exception's name.
    """
    try:
        return with_cluster(options, work, limited=False)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
        return 1


def table(rows: Sequence[Sequence[object]], widths: Sequence[int]) -> list[str]:
    """Return lines of cells, padded to the widths, or to the longest cell of a column if that is wider."""
    cells = [[str(cell) for cell in row] for row in rows]
    wide = [max(width, *(len(row[index]) for row in cells)) if width else 0 for index, width in enumerate(widths)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)) for row in cells]


def tab_table(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return lines of cells, padded to the longest one of their column, with tabs between the columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["\t".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
