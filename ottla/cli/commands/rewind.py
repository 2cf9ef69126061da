"""The command `ottla rewind`: it sets logs, offsets and settings of a fork back to a time."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import DryRun, Output, run
from ottla.cli.output import note, print_rows, would
from ottla.client.values import time_ms, time_text
from ottla.local.snapshots.rewinding import rewind_fork
from ottla.local.snapshots.taking import start_command

app = App("rewind", "Let a fork be what the cluster was at a time.")

COLUMNS = ("rewound_to", "removed_records", "removed_topics", "empty_topics")

main = partial(run, app)


@app.default
def rewind(
    *,
    to: Annotated[str, Parameter(help="The time: 2026-01-31T12:00:00Z, or @ and epoch milliseconds.")],
    dir: Annotated[str, Parameter(help="The directory of the fork, as of `ottla fork --into`.")],
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Remove from a fork that is stopped what was written after a time: records, offsets of groups, topics, settings."""
    directory = os.path.abspath(dir)
    done = rewind_fork(directory, time_ms("--to", to), dry_run)
    if done.empty_topics:
        note(f"deleted since then, and empty: {', '.join(done.empty_topics)}")
    if done.compacted:
        note(f"compacted since then, so that replaced records are missing: {', '.join(done.compacted)}")
    row = {
        "rewound_to": time_text(done.to_ms),
        "removed_records": done.removed_records,
        "removed_topics": done.removed_topics,
        "empty_topics": done.empty_topics,
    }
    print_rows([row], COLUMNS, output)
    if dry_run:
        would(f"rewind {directory} to {row['rewound_to']}")
    else:
        note(f"`{start_command(directory)}` starts it")
