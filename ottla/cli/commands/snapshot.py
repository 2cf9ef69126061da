"""The commands of `ottla snapshot`: create, list, restore, delete."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import DryRun, Output, Yes, run
from ottla.cli.output import confirm, note, print_rows, would
from ottla.client.failures import Failure
from ottla.client.values import time_text
from ottla.local.snapshots import layout
from ottla.local.snapshots.placing import at_rest, checked, restore, tables_of_lost
from ottla.local.snapshots.taking import check, cluster_at, data_directories, start_command, take

app = App(
    "snapshot",
    "Consistent copies of a cluster that runs on this machine: create, list, restore, delete.\n\n"
    "`ottla fork` makes clusters of them. They share the files of the cluster that are never written again.",
)

COLUMNS = ("snapshot", "taken", "nodes", "files", "linked_bytes", "copied_bytes", "fence_ms")

Directory = Annotated[
    str, Parameter(name="--dir", env_var="OTTLA_DIR", help="The directory of the cluster, as of `ottla dev --dir`.")
]

main = partial(run, app)


@app.command
def create(name: str, /, *, dir: Directory, dry_run: DryRun = False, output: Output = "table") -> None:
    """Take a snapshot, also while the cluster runs: its nodes stand still for some milliseconds."""
    directory = os.path.abspath(dir)
    check(directory, name)
    if dry_run:
        would(f"take the snapshot {name} of {directory}")
        return
    about, damaged = take(directory, name)
    for path in damaged:
        note(f"{path} could not be opened, as in the cluster: it is in the snapshot as it was")
    print_rows([_row(about)], COLUMNS, output)


@app.named("list")
def list_(*, dir: Directory, output: Output = "table") -> None:
    """Show the snapshots of a cluster."""
    directory = os.path.abspath(dir)
    cluster_at(directory)
    found: list[layout.About] = []
    for name in layout.names(directory):
        try:
            found.append(layout.read(layout.path_of(directory, name)))
        except Failure as damage:
            note(damage.cause)
    print_rows([_row(each) for each in sorted(found, key=lambda each: each.taken_ms)], COLUMNS, output)


@app.named("restore")
def restore_(name: str, /, *, dir: Directory, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Let a cluster that is stopped be what it was. What was written since is lost."""
    directory = os.path.abspath(dir)
    layout.check_name(name)
    about = checked(layout.path_of(directory, name))
    with at_rest(data_directories(directory, about.nodes)):
        pass
    if topics := tables_of_lost(directory, about):
        note(
            f"what {name} has was lost when the cluster was set back since: the tables of {', '.join(topics)} would have rows twice "
            "or other ones; run `ottla table rebuild` for each before the cluster starts again"
        )
    if dry_run:
        would(f"restore {directory} to {time_text(about.taken_ms)}")
        return
    confirm(f"lose all that was written to {directory} since {time_text(about.taken_ms)}?", yes)
    restore(directory, name)
    note(f"{directory} is as it was at {time_text(about.taken_ms)}: `{start_command(directory)}` starts it")


@app.command
def delete(name: str, /, *, dir: Directory, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Remove a snapshot. Forks of it keep what they share with it."""
    path = layout.path_of(os.path.abspath(dir), name)
    layout.check_name(name)
    try:
        what = f"the snapshot {name} of {time_text(layout.read(path).taken_ms)}"
    except layout.DamagedSnapshot:
        what = f"the damaged snapshot {name}"
    if dry_run:
        would(f"delete {what}")
        return
    confirm(f"delete {what}?", yes)
    layout.remove(path)
    note(f"the snapshot {name} is deleted")


def _row(about: layout.About) -> dict[str, object]:
    return {
        "snapshot": about.name,
        "taken": time_text(about.taken_ms),
        "nodes": about.nodes,
        "files": about.files,
        "linked_bytes": about.linked_bytes,
        "copied_bytes": about.copied_bytes,
        "fence_ms": about.fence_ms,
    }
