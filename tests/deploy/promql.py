"""The part of PromQL that the shipped rules and dashboards use, over a list of scrapes: enough to see an alert fire.

comparison   [sum|max](selector) OP number, selector OP number
history      changes(selector[5m]): over all the scrapes of an instance that are given
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Series = dict[Labels, list[float]]

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
EXPRESSION = re.compile(r"(?P<vector>.+?)\s*(?P<op>==|!=|>=|<=|>|<)\s*(?P<number>-?[\d.]+)")
CALL = re.compile(r"(?P<name>sum|max|changes)\((?P<inner>.+)\)")
SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(\{(?P<labels>[^}]*)\})?(\[\w+\])?")
MATCHER = re.compile(r'(\w+)(=~|!~|=|!=)"([^"]*)"')
MATCH: dict[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "=~": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "!~": lambda value, pattern: re.fullmatch(pattern, value) is None,
}


@dataclass
class Scrapes:
    """The text that each instance returned, the newest last; None if the instance could not be reached."""

    job: str
    texts: dict[str, list[str | None]] = field(default_factory=dict)

    def add(self, instance: str, text: str | None) -> None:
        self.texts.setdefault(instance, []).append(text)

    def series(self, name: str) -> Series:
        """Return the values of every series of this name. A series whose newest scrape failed is stale, and left out."""
        found: Series = {}
        for instance, texts in self.texts.items():
            own = {"instance": instance, "job": self.job}
            if name == "up":
                found[frozenset(own.items())] = [float(text is not None) for text in texts]
            elif texts[-1] is not None:
                for text in filter(None, texts):
                    for labels, value in samples(text, name):
                        found.setdefault(frozenset({**labels, **own}.items()), []).append(value)
        return found


def samples(text: str, name: str) -> list[tuple[Mapping[str, str], float]]:
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return [(sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name]


def select(text: str, scrapes: Scrapes) -> Series:
    match = SELECTOR.fullmatch(text.strip())
    assert match is not None, f"{text!r} is not a selector"
    matchers = MATCHER.findall(match["labels"] or "")
    return {
        labels: values
        for labels, values in scrapes.series(match["name"]).items()
        if all(MATCH[kind](dict(labels).get(label, ""), wanted) for label, kind, wanted in matchers)
    }


def vector(text: str, scrapes: Scrapes) -> dict[Labels, float]:
    call = CALL.fullmatch(text.strip())
    if call is None:
        return {labels: values[-1] for labels, values in select(text, scrapes).items()}
    inner = select(call["inner"], scrapes)
    if call["name"] == "changes":
        return {
            labels: float(sum(a != b for a, b in pairwise(values)))
            for labels, values in inner.items()
            if len(values) > 1
        }
    newest = [values[-1] for values in inner.values()]
    if not newest:
        return {}
    return {frozenset(): sum(newest) if call["name"] == "sum" else max(newest)}


def firing(expression: str, scrapes: Scrapes) -> dict[Labels, float]:
    """Return the alerts that the rule would send."""
    match = EXPRESSION.fullmatch(expression.strip())
    assert match is not None, f"{expression!r} is not a comparison with a number"
    compare, limit = COMPARISONS[match["op"]], float(match["number"])
    return {labels: value for labels, value in vector(match["vector"], scrapes).items() if compare(value, limit)}


def metric_names(expression: str) -> set[str]:
    """Return the names of metrics in an expression."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|without)\s*\([^)]*\)", "", expression)
    words = set(re.findall(r"[a-zA-Z_][\w:]*", bare))
    return {word for word in words if "_" in word or word == "up"}
