"""The modules that a process imports before it does anything: they take nine tenths of the time of a command, and of a node's
start.

The counts are of modules of Ottla and of other packages. Each limit is at most three above the present number (2026-11-30); one
module takes 0.2 to 1 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.ottla.conftest import ROOT

COUNT = """
import json, sys
before = set(sys.modules)
{}
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
#: Modules of the standard library that take about 10 ms each.
SLOW = {
    "email",
    "http",
    "urllib.request",
    "multiprocessing",
    "pdb",
    "sqlite3",
    "tempfile",
    "unittest",
    "xml",
    "zipfile",
}
#: Modules that a node with remote storage imports when its broker is made: they take 6 ms.
TIERS = {"ottla.broker.broker_tiers", "ottla.broker.fetch.remote_fetch", "ottla.broker.tiers"}
#: These take 3 ms together, and a start without a mistake in its properties does not need them.
OF_A_START = SLOW | {"rich", "cryptography", "difflib", "platform", "sysconfig", "uuid"}
OF_A_COMMAND = SLOW | {"rich", "uvloop", "cryptography", "prometheus_client", "yaml"}


@pytest.mark.parametrize(
    ("code", "limit", "never"),
    [
        ("from ottla.__main__ import main; main(['--version'])", 8, OF_A_COMMAND | {"typing", "asyncio", "inspect"}),
        (
            "from ottla.cli.application import parsed; from ottla.cli.commands.topic import app; parsed(app, ['list'])",
            91,
            OF_A_COMMAND,
        ),
        ("from ottla.__main__ import main; main(['complete', '--', 'topic', 'li'])", 94, OF_A_COMMAND),
        ("from ottla.processes.start import imported; imported()", 543, OF_A_START | TIERS),
        ("import pytest; before = set(sys.modules); import ottla.testing.plugin", 7, SLOW | {"asyncio", "rich"}),
    ],
    ids=["version", "topic-list", "completion", "start", "plugin"],
)
def test_no_more_modules_are_imported_than_needed(code: str, limit: int, never: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(code)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded: list[str] = json.loads(done.stderr.splitlines()[-1])
    needless = {name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in never)}
    assert not needless
    ours = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    assert len(ours) <= limit, ours
