"""The command `ottla adopt [DIR ...] [--config server.properties] [--dry-run]`: checks a stopped node's directories, and runs on them.

The directories are those of Apache Kafka 3.7 to 4.3 in KRaft mode, or our own. docs/MIGRATION.md has the steps.
"""

from __future__ import annotations

import time
from functools import partial
from random import Random
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import DryRun, Output, run
from ottla.cli.errors import OK, USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.client.connection import read_property_file

app = App("adopt", "Check the log directories of an Apache Kafka, and run a node on them.")

main = partial(run, app)


@app.default
def adopt(
    directories: Annotated[list[str] | None, Parameter(help="All log directories of one stopped node.")] = None,
    /,
    *,
    config: Annotated[
        str | None, Parameter(help="Kafka's server.properties, taken as it is. Without it minimal properties are made.")
    ] = None,
    dry_run: DryRun = False,
    output: Output = "table",
) -> int:
    """Say what the directories of a stopped node have and what a start changes, then run the node on them.

    They are not converted, so that Apache Kafka can go on with them again. Nothing is changed if they are refused.
    """
    if not directories and config is None:
        raise CommandFailed("no directory is named", "name what log.dirs names, or --config server.properties", USAGE)
    # Imported late, so that a wrong argument is answered at once.
    from ottla.node.adoption.check import changes, check, facts
    from ottla.node.adoption.directories import CannotAdopt
    from ottla.server.config.key import ConfigError

    properties = None if config is None else read_property_file(config, "name Kafka's server.properties")
    try:
        checked = check(directories or [], properties, Random(), time.time_ns() // 1_000_000)
    except CannotAdopt as refused:
        raise _failure(refused.reasons) from None
    except ConfigError as fault:
        raise CommandFailed(f"{config}: {fault}", fault.what_to_try or "nothing was changed", USAGE) from None
    found = facts(checked)
    if output == "table":
        print_rows(
            [{"found": name, "value": _text(value)} for name, value in found.items()], ("found", "value"), output
        )
    else:
        print_rows([{**found, "changes": list(changes(checked)), "properties": dict(checked.properties)}], (), output)
    for line in changes(checked):
        note(f"change: {line}")
    if config is None and checked.properties:
        note("properties, for `ottla start FILE` next time:")
        for name, value in checked.properties.items():
            note(f"  {name}={value}")
    for reason in checked.missing if dry_run else ():
        note(f"to start: {reason}")
    if dry_run:
        note("nothing was changed (--dry-run)")
        return OK
    if checked.missing:
        raise _failure(checked.missing)
    from ottla.node.process import run as run_node

    return run_node(checked.properties, dict.fromkeys(checked.properties, config or "adopt"))


def _failure(reasons: tuple[str, ...]) -> CommandFailed:
    *more, last = reasons
    for reason in more:
        note(f"ottla: {reason}")
    return CommandFailed(last, "nothing was changed")


def _text(value: object) -> object:
    return ", ".join(f"{name} {count}" for name, count in value.items()) or "-" if isinstance(value, dict) else value
