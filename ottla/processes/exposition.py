"""One text of Prometheus from those of several nodes: every sample gets the label `node_id`."""

from __future__ import annotations

from collections.abc import Mapping


class _Family:
    """One metric: its HELP and TYPE, which may occur only once, and the samples of all nodes."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.samples: list[str] = []


def merge(texts: Mapping[int, str]) -> str:
    """Returns the families in the order in which they first occur. A family's samples are the lines after its TYPE."""
    families: dict[str, _Family] = {}
    for node_id, text in texts.items():
        label = f'node_id="{node_id}"'
        family = families.setdefault("", _Family())
        for line in text.splitlines():
            if line.startswith("#"):
                words = line.split(" ", 3)
                family = families.setdefault(words[2], _Family())
                if not any(known.startswith(f"# {words[1]} ") for known in family.header):
                    family.header.append(line)
            elif line:
                family.samples.append(_labelled(line, label))
    lines = [line for family in families.values() for line in (*family.header, *family.samples)]
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
