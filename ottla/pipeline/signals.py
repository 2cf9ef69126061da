"""Ctrl-C and SIGTERM as something to look at between two steps: what is under way is finished first."""

from __future__ import annotations

import signal
import threading
from typing import Any


def stopped_by_signals() -> threading.Event:
    """Set by Ctrl-C or SIGTERM; a second one ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
    return stop
