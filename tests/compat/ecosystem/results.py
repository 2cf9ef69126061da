"""The results of the suite `ecosystem`, one for each client: kept in a file, and the table of the page made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.compat.ecosystem.clients import CLIENTS

PATH = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[3] / "docs" / "COMPATIBILITY.md"
#: The lines of the page between which the table stands.
BEGIN, END = "<!-- ecosystem begins -->", "<!-- ecosystem ends -->"
SOURCES = {"pip": "PyPI", "npm": "npm", "go": "Go module", "deb": "Debian"}


@dataclass
class Result:
    """The output of a client's program, and the day."""

    version: str
    date: str
    passed: list[str] = field(default_factory=list)
    #: The failed checks, with the reason.
    failed: list[str] = field(default_factory=list)


def read_results() -> dict[str, Result]:
    return {name: Result(**fields) for name, fields in json.loads(PATH.read_text()).items()}


def write_results(results: dict[str, Result]) -> None:
    """Add the results to the kept ones."""
    kept = read_results() if PATH.exists() else {}
    kept |= results
    PATH.write_text(json.dumps({name: asdict(kept[name]) for name in sorted(kept)}, indent=2) + "\n")


def table() -> Iterable[str]:
    """Yield the lines of the page's table: the clients that were run, in the order of `CLIENTS`."""
    results = read_results()
    yield "| client | from | settings | what was run | result | date |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for client in CLIENTS:
        found = results.get(client.name)
        if found is None:
            continue
        checks = "; ".join([*found.passed, *(row.partition(":")[0] for row in found.failed)])
        count = f"{len(found.passed)} of {len(found.passed) + len(found.failed)}"
        name = f"{client.name} {found.version}"
        yield f"| {name} | {SOURCES[client.source]} | {client.settings} | {checks} | {count} | {found.date} |"


def page() -> str:
    """Return the page with the table of the kept results."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", *table(), f"{END}{after}"])
