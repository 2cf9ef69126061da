"""Parts of pages that are generated from tables in the code: the rows of commands in docs/CLI.md, the names of APIs and errors
in docs/TESTING.md, and the index of docs/DIFFERENCES.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.cli.command_table import COMMANDS
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.testing.spoiled import STRUCK

#: The beginnings of words in the index: an API as Kafka writes it, and a property.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[a-z0-9]+)*")
_CONFIGS = BROKER_CONFIGS.keys() | TOPIC_CONFIGS.keys() | GROUP_CONFIGS.keys() | CLIENT_METRICS_CONFIGS.keys()


def commands(page: str) -> list[str]:
    """Return a row for each command of `ottla`."""
    return [
        "",
        "| command | does |",
        "| --- | --- |",
        *(f"| {name} | {row.summary} |" for name, row in COMMANDS.items()),
        "",
    ]


def names(page: str) -> list[str]:
    """Return what `fail_next`, `delay` and `versions` of a test take, with the versions of each API."""
    apis = ", ".join(f"{name} {api.advertised_min}-{api.max_version}" for name, api in sorted(STRUCK.items()))
    errors = {
        is_retriable: ", ".join(sorted(each.name for each in ErrorCode if each.retriable is is_retriable))
        for is_retriable in (True, False)
    }
    return [
        "",
        "What `fail_next`, `delay` and `versions` take: names, in any case and with or without underscores, or Kafka's",
        "numbers.",
        "",
        "The APIs that clients ask brokers for, with their versions:",
        apis + ".",
        "",
        "Errors that clients retry by themselves:",
        errors[True] + ".",
        "",
        "Others:",
        errors[False] + ".",
        "",
    ]


def index(page: str) -> list[str]:
    """Return a row for each section of the page: the APIs and the properties that its rows name."""
    apis = {"".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
    rows = ["", "| section | APIs | properties |", "| --- | --- | --- |"]
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title != "Index":
            words = sorted({word for line in text.split("\n") if line.startswith("|") for word in _WORD.findall(line)})
            named = ", ".join(word for word in words if word in apis)
            properties = ", ".join(f"`{word}`" for word in words if "." in word and word in _CONFIGS)
            rows.append(f"| [{title}](#{anchor(title)}) | {named} | {properties} |")
    return [*rows, ""]


def anchor(title: str) -> str:
    """Return the part of a link that leads to a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


#: The page, and the heading above the part, which ends at the next heading.
MADE_PARTS: dict[tuple[str, str], Callable[[str], list[str]]] = {
    ("docs/CLI.md", "## All commands"): commands,
    ("docs/DIFFERENCES.md", "## Index"): index,
    ("docs/TESTING.md", "## Names of APIs and errors"): names,
}


def with_part(page: str, heading: str, make: Callable[[str], list[str]]) -> str:
    """Return the page with its part generated again. The text after the next heading is unchanged."""
    before, _, rest = page.partition(f"\n{heading}\n")
    after = f"\n{rest}".partition("\n## ")[2]
    return "\n".join([before, heading, *make(page), *([f"## {after}"] if after else [])])
