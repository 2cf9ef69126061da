"""The run of a command: its words are parsed, an event loop and a cluster client are made.

The options of every command are here too.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import BoundArguments, Signature
from typing import Annotated, Any, Literal, Never, TypeVar

from ottla.cli import contexts
from ottla.cli.app import App, Parameter, option_group
from ottla.cli.errors import OK, TIMED_OUT, USAGE, CommandFailed
from ottla.cli.other_words import hint_of_option, leading_options
from ottla.cli.word_parser import FromEnvironment, asks_for_help, bind
from ottla.client.admin_listeners import AdminAddresses, parse_admin
from ottla.client.cluster import CLIENT_ID, ClusterClient
from ottla.client.connection import TimeUp, open_cluster, read_client_properties
from ottla.client.failures import did_you_mean
from ottla.local.running import admin_listeners

BOOTSTRAP = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "localhost:9092"

T = TypeVar("T")


def named(text: str | None) -> str | None:
    """Return a text from the command line, or None if it comes from the environment."""
    return None if isinstance(text, FromEnvironment) else text


@option_group
class ConnectionOptions:
    """The address of the cluster and the timeout of the command."""

    bootstrap: Annotated[
        str | None,
        Parameter(
            name=("--bootstrap", "-b"),
            env_var="OTTLA_BOOTSTRAP",
            help="Brokers, HOST:PORT[,HOST:PORT...].",
        ),
    ] = None
    config: Annotated[
        str | None,
        Parameter(
            name="--config",
            env_var="OTTLA_CONFIG",
            help="A file of client properties: security.protocol, ...",
        ),
    ] = None
    context: Annotated[
        str | None,
        Parameter(
            name="--context",
            env_var="OTTLA_CONTEXT",
            help="A cluster that `ottla context set` has named.",
        ),
    ] = None
    timeout: Annotated[float, Parameter(name="--timeout", help="Seconds until giving up, with exit code 124.")] = 30.0


Output = Annotated[
    Literal["table", "json", "yaml"],
    Parameter(name=("--output", "-o"), env_var="OTTLA_OUTPUT", help="A table, one JSON object per line, or YAML."),
]
DryRun = Annotated[bool, Parameter(help="Only show what would be changed.")]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask at a terminal.")]

CONNECTION = ConnectionOptions()


@option_group
class ListingOptions:
    """The form of what a command lists, and whether it lists again and again."""

    output: Output = "table"
    watch: Annotated[bool, Parameter(name=("--watch", "-w"), help="Show it again and again, until Ctrl-C.")] = False
    every: Annotated[float, Parameter(name="--every", help="Seconds between two looks of --watch.")] = 2.0


LISTING = ListingOptions()


@option_group
class Admin:
    """Addresses of the brokers' admin listeners. The user has to name them, because brokers do not describe them."""

    admin: Annotated[
        list[str] | None,
        Parameter(help="ID@HOST:PORT of a broker's admin listener (ottla.admin.listener)."),
    ] = None
    admin_port: Annotated[
        int | None,
        Parameter(env_var="OTTLA_ADMIN_PORT", help="The port of all brokers' admin listeners at their hosts."),
    ] = None

    def addresses(self, cluster: ClusterClient) -> dict[int, str]:
        """Return the address of each broker's admin listener that is known. `cluster` has its metadata.

        An `ottla dev` of this user has written its addresses to a file.
        """
        known = AdminAddresses(dict(map(parse_admin, self.admin or ())), self.admin_port, admin_listeners)
        return known.of(cluster.id, {node: host for node, (host, _) in cluster.brokers.items()})


ADMIN = Admin()


def run(app: App, arguments: Sequence[str]) -> int:
    """Parse and run the command, and return its exit code.

    A command without the verb that it needs shows its help, and ends as after a wrong usage.
    """
    command, bound = parsed(app, arguments)

    def once() -> int:
        result = command(*bound.args, **bound.kwargs)
        if asyncio.iscoroutine(result):
            result = _run_coroutine(result)
        return result if isinstance(result, int) else OK

    listing = next((value for value in bound.arguments.values() if isinstance(value, ListingOptions)), LISTING)
    if listing.watch and asyncio.iscoroutinefunction(command):
        _watch(once, listing.every)
    code = once()
    return USAGE if _verb_is_missing(app, arguments) else code


def parsed(app: App, arguments: Sequence[str]) -> tuple[Callable[..., Any], BoundArguments]:
    """Return the function of a command with its arguments.

    If help is asked for or the verb is missing, it is the function that shows the help.

    Raises:
        CommandFailed: the command does not take these words.
    """
    words, function, rest = f"ottla {app.name}", app.default_command, list(arguments)
    leading: list[str] = []
    if function is None:  # options before the verb are moved behind it
        leading, rest = leading_options(rest)
        if not rest or asks_for_help(rest[:1]):
            return partial(_show_help, app), BoundArguments(Signature(), OrderedDict())
        verb = rest.pop(0)
        if verb not in app.verbs:
            raise CommandFailed(
                f"there is no command {app.name + ' ' + verb!r}",
                did_you_mean(verb, app.verbs) or f"`{words} --help` shows its verbs",
                USAGE,
            )
        words, function = f"{words} {verb}", app.function(verb)
    if asks_for_help(rest):
        return partial(_show_help, app, words, function), BoundArguments(Signature(), OrderedDict())
    try:
        return function, bind(function, [*leading, *rest])
    except CommandFailed as fault:
        fault.remedy = hint_of_option(app.name, rest) or fault.remedy or f"`{words} --help` shows the usage"
        raise


def _show_help(app: App, words: str = "", function: Callable[..., Any] | None = None) -> None:
    from ottla.cli.help_page import command_help, verb_help  # imported late: only a call for help needs it

    print(command_help(app) if function is None else verb_help(words, function))


def _verb_is_missing(app: App, arguments: Sequence[str]) -> bool:
    return app.default_command is None and not leading_options(arguments)[1]


def repeat(look: Callable[[], Coroutine[object, Never, None]], listing: ListingOptions) -> None:
    """Run `look` once, or again and again with --watch. It is for commands that keep state between two runs of `look`."""
    if listing.watch:
        _watch(lambda: _run_coroutine(look()) or OK, listing.every)
    _run_coroutine(look())


def _watch(look: Callable[[], int], every_s: float) -> Never:
    from ottla.cli.watching import watch  # imported late: few calls of a command have --watch

    watch(look, every_s)


def chosen(servers: str | None, path: str | None, context: str | None) -> tuple[str, dict[str, str], str | None]:
    """Return the addresses, the client properties and their file.

    The command line wins over the environment, and both win over the current context. A context that the command line names
    wins over variables, and the addresses in a file that it names win over OTTLA_BOOTSTRAP.

    Raises:
        CommandFailed: there is no such context.
        ClusterError: the file cannot be read.
    """
    if named(context) is not None:
        servers, path = named(servers), named(path)
    if servers is None and path is None:
        found = contexts.current(context)
        servers, path = found.bootstrap, found.config
    properties = {} if path is None else read_client_properties(path)
    if named(path) is not None:
        servers = named(servers) or properties.get(BOOTSTRAP) or servers
    return servers or properties.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP, properties, path


@asynccontextmanager
async def connect(
    connection: ConnectionOptions,
    *,
    limited: bool = True,
    client_id: str = CLIENT_ID,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[ClusterClient]:
    """Connect a cluster client for one command; `limited` commands end with exit code 124 after their timeout.

    `properties` come from the node's file that the command line names; then nothing else counts.
    """
    path: str | None = "the node's properties"
    if properties is not None:
        servers = properties.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP
    else:
        servers, properties, path = chosen(connection.bootstrap, connection.config, connection.context)
        if path is not None:
            from ottla.client.security import check_names  # imported late: it is slow, and only a file needs it

            check_names(properties, path)
    if connection.timeout <= 0:
        raise CommandFailed(f"--timeout {connection.timeout:g} is not above 0", None, USAGE)
    timeout_ms = max(1, int(connection.timeout * 1000))
    try:
        async with open_cluster(servers, properties, path, timeout_ms, limited=limited, client_id=client_id) as cluster:
            yield cluster
    except TimeUp as end:
        cause = f"gave up after {connection.timeout:g} s while {end.doing} at {servers}"
        raise CommandFailed(cause, "`ottla cluster health` may show why; --timeout waits longer", TIMED_OUT) from None


def _run_coroutine(coroutine: Coroutine[object, Never, T]) -> T:
    """Run the coroutine as asyncio.run does, but let Ctrl-C wait while the event loop is made or closed.

    A half-closed loop leaves tasks behind, and asyncio would complain about them on standard error.
    """
    runner = asyncio.Runner()
    try:
        with _interrupt_held_back():
            runner.get_loop()
        return runner.run(coroutine)
    # the interrupt came before the task's first step: asyncio forgets then that it was an interrupt
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        with _interrupt_held_back():
            runner.close()


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Hold back an interrupt that arrives in the block, and raise it at the block's end."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt
