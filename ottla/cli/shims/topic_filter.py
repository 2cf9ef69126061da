"""The regular expressions of topics that Kafka's tools take, read as Kafka's IncludeList reads them."""

from __future__ import annotations

import re

from ottla.cli.errors import CommandFailed


def included(text: str) -> re.Pattern[str]:
    """Returns the pattern of `--topic "a, b"`: a comma is an alternative; blanks, and quotes around the whole, count for nothing.

    Raises:
        CommandFailed: it is no regular expression.
    """
    return java_pattern(re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", "")), text)


def java_pattern(text: str, shown: str | None = None) -> re.Pattern[str]:
    """Compile the text; `shown` is what the message names in place of it.

    Raises:
        CommandFailed: it is no regular expression.
    """
    try:
        return re.compile(text, re.ASCII)
    except re.error:
        raise CommandFailed(f"{text if shown is None else shown} is an invalid regex") from None
