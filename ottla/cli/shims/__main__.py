"""The entry point `python -m ottla.cli.shims kafka-topics ...`: it runs a tool by its name in Kafka's bin directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ottla.cli.kafka_tools import TOOLS


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in TOOLS:
        print(f"which tool? one of {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    try:
        code: int = import_module(TOOLS[arguments[0]]).main(list(arguments[1:]))
        sys.stdout.flush()
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
