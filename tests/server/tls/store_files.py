"""Key stores as operators have them, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.tls.stores import TlsProperties

DEFAULTS = {name: key.default for name, key in BROKER_CONFIGS.items() if name.startswith("ssl.")}


def properties(files: Mapping[str, bytes | str] | None = None, **texts: str) -> TlsProperties:
    """Names have underscores in place of dots; other properties have their defaults."""
    contents = {path: each.encode() if isinstance(each, str) else each for path, each in (files or {}).items()}
    parsed = {
        name.replace("_", "."): BROKER_CONFIGS[name.replace("_", ".")].parse(text) for name, text in texts.items()
    }
    return TlsProperties(DEFAULTS | parsed, contents.get)
