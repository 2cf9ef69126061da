"""For all tests: processes that are started can be interrupted, also where the tests themselves run in the background.

A shell without job control starts background commands with SIGINT ignored, and what is ignored is inherited.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
