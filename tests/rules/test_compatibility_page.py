"""The table of docs/COMPATIBILITY.md follows from the results of the suite `ecosystem`; UPDATE=1 writes it."""

from __future__ import annotations

import os

from tests.compat.ecosystem.clients import CLIENTS
from tests.compat.ecosystem.results import PAGE, page, read_results


def test_the_table_of_clients_is_that_of_the_last_results() -> None:
    made = page()
    if os.environ.get("UPDATE"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made


def test_results_are_of_clients_that_the_suite_has_in_the_versions_that_it_installs() -> None:
    versions = {client.name: client.version for client in CLIENTS}
    assert {name: found.version for name, found in read_results().items()}.items() <= versions.items()
