"""The regular expressions of topics that Kafka's tools take, read as Kafka's IncludeList reads them."""

from __future__ import annotations

import re

from ottla.cli.errors import CommandFailed
from ottla.client.failures import Failure


def included(text: str, end: str = ".") -> re.Pattern[str]:
    """Return the pattern of `--topic "a, b"`: a comma separates alternatives; blanks, and quotes around the whole text, are
    ignored.

    Raises:
        CommandFailed: it is no regular expression; `end` is the end of the message.
    """
    cleaned = re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))
    try:
        return java_pattern(cleaned)
    except Failure:
        raise CommandFailed(f"{text} is an invalid regex{end}") from None


def java_pattern(text: str) -> re.Pattern[str]:
    """Compile the text.

    Raises:
        CommandFailed: it is no regular expression.
    """
    try:
        return re.compile(text, re.ASCII)
    except re.error:
        raise CommandFailed(f"{text} is an invalid regex") from None
