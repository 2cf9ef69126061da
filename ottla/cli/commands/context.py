"""The commands of `ottla context`: list, set, use, delete."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

from ottla.cli import contexts
from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.contexts import ClientContext, Contexts
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.client.cluster import parse_bootstrap

app = App(
    "context",
    "Names of clusters, so that commands need no -b and --config: list, set, use, delete.\n\n"
    "-b, --config and their variables win over a context, and --context NAME or $OTTLA_CONTEXT over the current one.",
)

COLUMNS = ("current", "context", "bootstrap", "config")

main = partial(run, app)


@app.named("list")
def list_(*, output: Output = "table") -> None:
    """Show the contexts."""
    found = contexts.load()
    rows = [
        {"current": "*" if name == found.current else "", "context": name, **context._asdict()}
        for name, context in sorted(found.named.items())
    ]
    print_rows(rows, COLUMNS, output)


@app.named("set")
def set_(
    name: str,
    /,
    *,
    bootstrap: Annotated[str | None, Parameter(name=("--bootstrap", "-b"), help="Brokers, HOST:PORT[,...].")] = None,
    config: Annotated[str | None, Parameter(help="A file of client properties.")] = None,
) -> None:
    """Name a cluster, and use it if it is the first."""
    if bootstrap is None and config is None:
        raise CommandFailed("a context has brokers or a file", "-b HOST:PORT, --config FILE, or both", USAGE)
    if bootstrap is not None:
        parse_bootstrap(bootstrap)
    found = contexts.load()
    context = ClientContext(bootstrap, None if config is None else os.path.abspath(config))
    contexts.save(Contexts(found.current or name, {**found.named, name: context}))
    note(f"context {name} is {'set' if found.current else 'set and used'}")


@app.command
def use(name: str, /) -> None:
    """Let commands go to the cluster of this name."""
    contexts.current(name)
    contexts.save(contexts.load()._replace(current=name))
    note(f"commands go to {name}")


@app.command
def delete(name: str, /) -> None:
    """Forget a name."""
    contexts.current(name)
    found = contexts.load()
    rest = {each: context for each, context in found.named.items() if each != name}
    contexts.save(Contexts(None if found.current == name else found.current, rest))
    note(f"deleted context {name}")
