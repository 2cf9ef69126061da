"""Paths are split before their parts are unescaped, so that a subject may have a slash or a percent sign in its name."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.registry.errors import RegistryError


class PathTarget(NamedTuple):
    """The target of a request: the parts of its path, and its query as it arrived."""

    parts: list[str]
    query: str


def target_of(raw_path: bytes, query: bytes) -> PathTarget:
    """Return the target of a request. As in JAX-RS, slashes at the end and double slashes are ignored.

    Raises:
        RegistryError: a part is not UTF-8.
    """
    try:
        parts = [urllib.parse.unquote_to_bytes(part).decode() for part in raw_path.split(b"/") if part]
    except UnicodeDecodeError:
        raise RegistryError("no_such_path") from None
    return with_context(PathTarget(parts, query.decode("latin-1")))


def parameters_of(pattern: str, parts: Sequence[str]) -> dict[str, str] | None:
    """Return the parts of a path that match the names in a pattern such as /subjects/{subject}; None if the path does not
    match.
    """
    wanted = pattern.split("/")[1:] if pattern != "/" else []
    if len(wanted) != len(parts):
        return None
    found = {}
    for name, part in zip(wanted, parts, strict=True):
        if name.startswith("{"):
            found[name[1:-1]] = part
        elif name != part:
            return None
    return found


def with_context(target: PathTarget) -> PathTarget:
    """Return the target of a path that begins with /contexts/NAME, as a target about the subjects of that context."""
    parts, query = target
    if len(parts) < 3 or parts[0] != "contexts":
        return target
    context = parts[1].strip(":")
    if context in (".", ""):
        prefix = ""
    else:
        prefix = f":{context}:" if context.startswith(".") else f":.{context}:"
    rest = parts[2:]
    if rest[0] == "compatibility" and len(rest) > 2:
        rest[2] = prefix + rest[2]
    elif rest[0] in ("config", "mode") or (rest[0] == "subjects" and len(rest) > 1):
        rest[1:2] = [prefix + (rest[1] if len(rest) > 1 else "")]
        rest = rest if rest[1] else rest[:1]
    else:
        name = "subjectPrefix" if rest == ["subjects"] or rest == ["schemas"] else "subject"
        kept = [(key, value) for key, value in urllib.parse.parse_qsl(query, keep_blank_values=True) if key != name]
        given: Mapping[str, str] = dict(urllib.parse.parse_qsl(query))
        query = urllib.parse.urlencode([*kept, (name, prefix + given.get(name, ""))])
    return PathTarget(rest, query)
