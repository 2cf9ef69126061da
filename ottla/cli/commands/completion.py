"""The commands `ottla completion SHELL`, which prints a shell's script, and `ottla complete WORDS`, which that script calls.

Names of topics, groups, users and the like come from the cluster that the words name, or from the context in use. Nothing is
offered when it does not answer within a second: completion must not make a terminal wait, and never prints an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli import contexts
from ottla.cli.application import Connection, connect, run
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import RESOURCE_TYPES
from ottla.cli.client.groups import list_groups
from ottla.cli.client.transactions import list_transactions
from ottla.cli.client.users import describe_scram_users
from ottla.cli.command_table import COMMANDS
from ottla.cli.errors import CommandFailed

TIMEOUT_S = 1.0

SCRIPTS = {
    "bash": """_ottla() {
    local IFS=$'\\n'
    COMPREPLY=($(ottla complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ottla ottla""",
    "zsh": """#compdef ottla
_ottla() {
    local -a found
    found=("${(@f)$(ottla complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found
}
compdef _ottla ottla""",
    "fish": """complete -c ottla -f -a '(ottla complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}

#: What stands at a place of a command: the command, its verb if it has verbs, and the number of words before it.
TOPIC, GROUP, USER, BROKER, TRANSACTION, CONTEXT = "topic", "group", "user", "broker", "transaction", "context"
PLACES: dict[tuple[str, str | None], str] = {
    ("produce", None): TOPIC,
    ("consume", None): TOPIC,
    **{
        ("topic", verb): TOPIC
        for verb in ("list", "describe", "copy", "delete", "diff", "add-partitions", "delete-records")
    },
    ("rebalance", None): TOPIC,
    **{("perf", verb): TOPIC for verb in ("produce", "consume", "latency")},
    **{("reassign", verb): TOPIC for verb in ("plan", "cancel")},
    **{("partition", verb): TOPIC for verb in ("move", "cancel", "elect")},
    **{("group", verb): GROUP for verb in ("describe", "lag", "reset", "delete")},
    **{("user", verb): USER for verb in ("list", "passwd", "delete")},
    **{("broker", verb): BROKER for verb in ("log-dirs", "drain", "remove")},
    **{("txn", verb): TRANSACTION for verb in ("describe", "abort", "forget")},
    **{("context", verb): CONTEXT for verb in ("use", "delete", "set")},
}
#: The values of options.
OPTION_VALUES = {
    "--group": GROUP,
    "-g": GROUP,
    "--topic": TOPIC,
    "-t": TOPIC,
    "--context": CONTEXT,
    "--user": USER,
    "--to-context": CONTEXT,
    "--drain": BROKER,
}
CONNECTION_OPTIONS = {"-b": "bootstrap", "--bootstrap": "bootstrap", "--config": "config", "--context": "context"}

completion_app = App(name="completion", version_flags=[], help="Print the completion script of a shell.")
complete_app = App(name="complete", version_flags=[], help="Print what can follow the words of a command line.")

print_script = partial(run, completion_app)


def main(arguments: Sequence[str]) -> int:
    """The entry point of both commands: `complete` has the words of a command line behind a --."""
    if list(arguments[:1]) == ["--"]:
        for found in candidates(list(arguments[1:])):
            print(found)
        return 0
    return print_script(arguments)


@completion_app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Load the output at the start of the shell.")], /
) -> None:
    """Print the script: `source <(ottla completion bash)`, or `ottla completion fish | source`."""
    print(SCRIPTS[shell])


def candidates(words: list[str]) -> list[str]:
    """Return what can stand in place of the last word, which may be empty or a beginning."""
    *before, beginning = words or [""]
    return sorted({found for found in _possible(before, beginning) if found.startswith(beginning)})


def _possible(before: list[str], beginning: str) -> Iterable[str]:
    if not before:
        return COMMANDS
    command, rest = before[0], before[1:]
    if command not in COMMANDS:
        return ()
    app = getattr(import_module(COMMANDS[command].module), "app", None)
    if not isinstance(app, App):
        return ()
    verbs = {} if app.default_command is not None else {name: app[name] for name in app if not name.startswith("-")}
    if verbs and not rest:
        return verbs
    verb = rest[0] if verbs else None
    if verb is not None and verb not in verbs:
        return ()
    if rest and rest[-1] in OPTION_VALUES:
        return _names(OPTION_VALUES[rest[-1]], rest)
    if beginning.startswith("-"):
        arguments = verbs[verb] if verb is not None else app
        return [name for found in arguments.assemble_argument_collection() for name in found.names if name[0] == "-"]
    if command == "config" and verb is not None:
        if len(rest) == 1:
            return RESOURCE_TYPES
        return _names(rest[1], rest) if len(rest) == 2 or verb == "diff" else ()
    return _names(PLACES.get((command, verb), ""), rest)


def _names(kind: str, words: Sequence[str]) -> list[str]:
    """Return names of the cluster that the words connect to; nothing if it does not answer."""
    options = {name: os.environ.get(f"OTTLA_{name.upper()}") for name in CONNECTION_OPTIONS.values()}
    options |= {CONNECTION_OPTIONS[word]: value for word, value in pairwise(words) if word in CONNECTION_OPTIONS}
    try:
        if kind == CONTEXT:
            return list(contexts.load().named)
        if kind not in LISTED:
            return []
        return asyncio.run(_listed(kind, Connection(**options, timeout=TIMEOUT_S)))
    except CommandFailed:
        return []


async def _listed(kind: str, connection: Connection) -> list[str]:
    async with connect(connection) as cluster:
        return await LISTED[kind](cluster)


async def _topics(cluster: ClusterClient) -> list[str]:
    return await cluster.topic_names()


async def _groups(cluster: ClusterClient) -> list[str]:
    return [group.group_id for group in await list_groups(cluster)]


async def _users(cluster: ClusterClient) -> list[str]:
    return list(await describe_scram_users(cluster))


async def _brokers(cluster: ClusterClient) -> list[str]:
    return [str(broker.node_id) for broker in (await cluster.metadata([])).brokers]


async def _transactions(cluster: ClusterClient) -> list[str]:
    return [row.transactional_id for row in await list_transactions(cluster)]


LISTED: dict[str, Callable[[ClusterClient], Awaitable[list[str]]]] = {
    TOPIC: _topics,
    GROUP: _groups,
    USER: _users,
    BROKER: _brokers,
    TRANSACTION: _transactions,
}
