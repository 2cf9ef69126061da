"""Kafka's own tools and Ottla's at an Ottla node: both play the recorded sessions of `tests/ottla/cli/shims/recorded`.

Kafka's tool must print at an Ottla node what it printed at Apache Kafka when the session was recorded, and Ottla's must print
the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from difflib import ndiff
from pathlib import Path

from ottla.testing import Cluster
from tests.compat.librdkafka import Outcome
from tests.ottla.cli.shims.recorded import SESSIONS, Run, node_properties, play, read_session, run_ours
from tests.ottla.cli.shims.recorded.apache import apache_tools
from tests.ports import free_base_port

#: Sessions in which Kafka's tool does not print the same each time. A step passes if one of TRIES runs prints the recorded lines.
CHANGING = {
    "acls": "resources are printed in the order of a hash of their names, and the names of a run are drawn",
    "metadata-shell": "the shell runs its command before its loader has applied the whole file: on a busy machine half of it is missing",
}
TRIES = 5


def outcomes(names: Iterable[str]) -> Iterator[Outcome]:
    """Play the sessions of these names, or all, each with Kafka's tools and then with Ottla's."""
    wanted = set(names)
    port = free_base_port()
    properties = {1: node_properties(port)}
    with Cluster(1, base_port=port, per_node=properties) as cluster, apache_tools() as apache:
        for path in SESSIONS:
            if not wanted or path.stem in wanted:
                yield _outcome(f"kafka {path.stem}", path, apache, cluster.bootstrap)
                yield _outcome(f"ottla {path.stem}", path, run_ours, cluster.bootstrap)


def _outcome(name: str, path: Path, run: Run, server: str) -> Outcome:
    began = time.monotonic()
    tries = TRIES if run is not run_ours and path.stem in CHANGING else 1
    wrong = _wrong(path, run, server)
    for _ in range(1, tries):
        if not wrong:
            break
        again = _wrong(path, run, server)
        wrong = {step: change for step, change in wrong.items() if step in again}
    return Outcome(name, "FAIL" if wrong else "PASS", time.monotonic() - began, "; ".join(wrong.values()))


def _wrong(path: Path, run: Run, server: str) -> dict[str, str]:
    """Return the differences of each step, by its command."""
    wrong: dict[str, str] = {}
    for step, lines in play(read_session(path), run, server):
        if lines != step.lines:
            changes = [line for line in ndiff(step.lines, lines) if line[0] in "+-"]
            wrong[step.command] = f"$ {step.command}: {' | '.join(changes)}"
    return wrong
