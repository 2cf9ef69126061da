"""Two pipes between a node and the process that started it (`ottla dev`, `ottla start --processes`).

ready     the node writes one line once it serves clients
alive     the node stops when the other end is closed: however its parent ends, no node outlives it
"""

from __future__ import annotations

import os

#: "<fd of ready>,<fd of alive>"
PIPES_VARIABLE = "OTTLA_DEV_PIPES"


def inherited_pipes() -> tuple[int, int]:
    """Return the file descriptors of ready and alive; (-1, -1) for a node that was not started this way."""
    text = os.environ.pop(PIPES_VARIABLE, "")
    ready, _, alive = text.partition(",")
    return (int(ready), int(alive)) if alive else (-1, -1)
