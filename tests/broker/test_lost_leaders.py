"""Whose questions for metadata wait a moment, so that no leader is named that has just died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.lost_leaders import HeldAnswers


@pytest.mark.parametrize(("age_ms", "waits"), [(0, False), (20, False), (400, True), (60_000, True)])
def test_a_client_that_is_starting_does_not_wait_and_one_in_service_does(age_ms: int, waits: bool) -> None:
    """Clients whose leader was killed in their first second looked for the new one a second late: 0.4 s is in service."""
    clock: Any = SimpleNamespace(mono_ns=lambda: 10**12)
    connection: Any = SimpleNamespace(opened_ns=10**12 - age_ms * 1_000_000)
    wheel: Any = None
    assert HeldAnswers(clock, wheel).is_old(connection) is waits
