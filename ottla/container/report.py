"""The output of the entry point before the node's own log: the resolved properties, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.container.settings import Resolution
from ottla.server.config.broker import is_secret
from ottla.server.config.own import OWN_CONFIGS

HIDDEN = "[hidden]"
ORIGIN_COLUMN_MAX = 72


def report(resolution: Resolution, unknown: Sequence[str]) -> Iterator[str]:
    """Return the lines; secrets are left out."""
    yield f"===> Environment as of {resolution.dialect} ({resolution.reason})"
    rows = [
        (f"{name}={_shown(name, setting.value)}", setting.origin)
        for name, setting in sorted(resolution.settings.items())
    ]
    if resolution.cluster_id is not None:
        rows.insert(0, (f"cluster id {resolution.cluster_id.value}", resolution.cluster_id.origin))
    width = min(max((len(text) for text, _ in rows), default=0), ORIGIN_COLUMN_MAX)
    for text, origin in rows:
        yield f"     {text:{width}}  # {origin}"
    for note in resolution.notes:
        yield f"===> Note: {note}"
    if unknown:
        listed = ", ".join(f"{name} ({resolution.origin(name) or 'alias'})" for name in unknown)
        yield f"===> Not known, and ignored: {listed}"


def _shown(name: str, value: str) -> str:
    """Returns the value as it may stand in a log: passwords are hidden, and so is what is not known, as Kafka does."""
    own = OWN_CONFIGS.get(name)
    hidden = is_secret(name) if own is None else own.secret
    return HIDDEN if hidden else value.replace("\n", "\\n")
