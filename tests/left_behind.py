"""Fails a file of tests that changes its process for the tests that run later there.

Each run has other files in one process. A change that a file leaves behind, a handler of Ctrl-C for example, would fail tests
of other files, and only now and then.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest

#: pytest-timeout sets this handler for each test.
NOT_OURS = {signal.SIGALRM}


@pytest.fixture(autouse=True, scope="module")
def left_as_found() -> Iterator[None]:
    before = state()
    yield
    after = state()
    changed = {name: (value, after[name]) for name, value in before.items() if after[name] != value}
    assert not changed, f"left behind in this process (before, after): {changed}"


def state() -> dict[str, object]:
    """Return the state that a test can change for all later tests, and that no fixture of pytest restores."""
    handlers = {number.name: signal.getsignal(number) for number in signal.Signals if number not in NOT_OURS}
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    mask = os.umask(0)
    os.umask(mask)
    return {
        **handlers,
        "the wakeup descriptor of signals": wakeup,
        "the blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "the umask": mask,
        "the working directory": os.getcwd(),
        "whether garbage is collected": gc.isenabled(),
        "when garbage is collected": gc.get_threshold(),
        "the level of the root logger": logging.root.level,
        "the level below which nothing is logged": logging.root.manager.disable,
        "the policy of event loops": type(asyncio.get_event_loop_policy()),
    }
