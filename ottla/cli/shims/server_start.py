"""kafka-server-start: it runs a node from a properties file in the foreground.

It rejects -daemon, because a container needs a foreground process.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print("USAGE: kafka-server-start server.properties [--override property=value]*", file=sys.stderr)
        return 1
    from ottla.processes.start import main as start

    return start(arguments)
