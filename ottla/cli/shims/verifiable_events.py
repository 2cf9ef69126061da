"""The events of the verifiable producer and consumers: JSON objects, one a line, as Kafka's system tests read them."""

from __future__ import annotations

import json

from ottla.server.clock import Clock


def print_event(clock: Clock, name: str, **facts: object) -> None:
    """Print an event with its time. Flush it, because its reader waits for it."""
    row = {"timestamp": clock.wall_ms(), "name": name, **facts}
    print(json.dumps(row, separators=(",", ":"), ensure_ascii=False), flush=True)


def text(data: bytes | None) -> str | None:
    """Return a key or a value as Kafka's StringDeserializer does."""
    return None if data is None else data.decode(errors="replace")
