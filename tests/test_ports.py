"""The ports that tests give to their nodes belong to no other node, of any worker and any call."""

from __future__ import annotations

import pytest

from ottla.local.nodes import ADMIN_PORT_STEP, CONTROLLER_PORT_STEP
from tests.ports import HIGHEST, LOWEST, SPAN, free_base_port, free_ports, own_ports


def test_workers_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    seen: set[int] = set()
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        first = own_ports()
        ports = set(range(first[0], first[-1] + SPAN + 1))
        assert len(first) > 5_000 and not ports & seen
        seen |= ports
    assert min(seen) >= LOWEST and max(seen) <= HIGHEST


def test_a_port_is_not_given_again_before_something_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.ports.own_ports", lambda: range(LOWEST, LOWEST + 20))
    given = []
    for _ in range(3):
        base = free_base_port()
        given += [base, base + CONTROLLER_PORT_STEP, base + ADMIN_PORT_STEP, *free_ports(2)]
    assert len(set(given)) == len(given)
