"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(timestamp_ms: int) -> str | None:
    """Return ISO 8601 in UTC, None for a time that is not set."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
