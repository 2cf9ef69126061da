"""Points in time as users write them."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.cli.errors import USAGE, CommandFailed


def parse_time_ms(option: str, text: str) -> int:
    """ISO 8601 (UTC where no zone is said), or @ and epoch milliseconds."""
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write earliest, latest, an offset, 2026-01-31T12:00:00Z, or @1769860800000"
        raise CommandFailed(f"{option} {text!r} is no offset and no time", hint, USAGE) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
