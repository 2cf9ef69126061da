"""All fuzz targets by name. To add a target, add a row to the table of its file."""

from __future__ import annotations

from tests.fuzz import appends, batches, files, handshakes, kerberos, logins, logs, nodes, state, texts, wire
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *wire.TARGETS,
        *batches.TARGETS,
        *appends.TARGETS,
        *files.TARGETS,
        *logs.TARGETS,
        *logins.TARGETS,
        *kerberos.TARGETS,
        *handshakes.TARGETS,
        *state.TARGETS,
        *texts.TARGETS,
        *nodes.TARGETS,
    )
}
