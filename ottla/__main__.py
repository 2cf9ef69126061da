"""The command `ottla`, also as `python -m ottla`: a table of verbs, each in a module that is imported only when it is used.

A command module has `main(arguments) -> exit code`. Nothing else is loaded before it: `ottla --help` and a typing
mistake must answer at once, and `ottla start` must not pay for what the others need.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unhealthy (`cluster health`), 124 timed out, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from ottla.cli.errors import INTERRUPTED, OK, USAGE, CommandFailed, did_you_mean


class Command(NamedTuple):
    module: str
    summary: str


COMMANDS = {
    "start": Command("ottla.cli.commands.start", "run one node from a server.properties file"),
    "dev": Command("ottla.cli.commands.dev", "run a throw-away cluster in the foreground"),
    "topic": Command(
        "ottla.cli.commands.topic", "list, create, describe, delete, compare topics; add partitions, delete records"
    ),
    "produce": Command("ottla.cli.commands.produce", "write records from standard input"),
    "consume": Command("ottla.cli.commands.consume", "read records to standard output"),
    "group": Command("ottla.cli.commands.group", "list, describe, reset, delete consumer groups"),
    "txn": Command("ottla.cli.commands.txn", "list, describe, abort transactions"),
    "config": Command("ottla.cli.commands.config", "get, set, unset settings of topics, brokers and groups"),
    "acl": Command("ottla.cli.commands.acl", "who may do what: list, add, remove entries, and why a request is denied"),
    "user": Command("ottla.cli.commands.user", "list, create, delete users that log in by SCRAM; change passwords"),
    "token": Command("ottla.cli.commands.token", "list, create, renew, expire delegation tokens"),
    "quota": Command("ottla.cli.commands.quota", "list, set, unset quotas of users, client ids and addresses"),
    "client": Command("ottla.cli.commands.client", "which clients push metrics"),
    "broker": Command("ottla.cli.commands.broker", "list brokers and their log directories; drain, remove them"),
    "partition": Command("ottla.cli.commands.partition", "move replicas, elect leaders"),
    "feature": Command("ottla.cli.commands.feature", "list, upgrade, downgrade features of the cluster"),
    "cluster": Command("ottla.cli.commands.cluster", "who is in the cluster, and is it healthy"),
    "init": Command("ottla.cli.commands.init", "write the files of a cluster on machines elsewhere"),
    "context": Command("ottla.cli.commands.context", "name clusters, and choose the one that commands go to"),
    "secure": Command("ottla.cli.commands.secure", "make keys, certificates, users and client files for TLS and SASL"),
    "bench": Command("ottla.cli.commands.bench", "measure produce, consume and delay against a cluster"),
    "inspect": Command("ottla.cli.commands.inspect", "print the records of log files, without a broker"),
    "container": Command("ottla.cli.commands.container", "entry point of the container image"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what it returns is the process's exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return OK if words else USAGE
    if words[0] in ("-V", "--version"):
        print(_version())
        return OK
    command = COMMANDS.get(words[0])
    if command is None:
        return _report(CommandFailed(f"there is no command {words[0]!r}", _suggestion(words[0]), USAGE))
    try:
        code: int = import_module(command.module).main(words[1:])
        sys.stdout.flush()
    except CommandFailed as failure:
        return _report(failure)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python would raise the error again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "Ottla: a Kafka-protocol cluster in Python.\n\n"
        f"Usage: ottla COMMAND ...\n\n{rows}\n\n"
        "`ottla COMMAND --help` says more. Most commands take -b HOST:PORT (or $OTTLA_BOOTSTRAP) and -o table|json."
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"ottla {version('ottla')}"
    except PackageNotFoundError:
        return "ottla (not installed)"


def _suggestion(word: str) -> str:
    return did_you_mean(word, COMMANDS) or "`ottla --help` lists the commands"


def _report(failure: CommandFailed) -> int:
    print(failure.text(), file=sys.stderr)
    return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())
