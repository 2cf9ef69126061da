"""When a local cluster was set back, and to what time: by `ottla snapshot restore` or `ottla rewind`.

A snapshot that was taken between the two has records that the cluster has lost since. When it is restored, these records
come back with their old leader epochs. A table may have taken them already, or others at their offsets in a newer epoch.
It cannot know that they are valid again: an offset and an epoch say where it is, and not which past it has.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

from ottla.client.failures import Failure

#: The file in the directory of a cluster that has been set back.
FILE = "set-back.json"


class SetBack(NamedTuple):
    """The cluster is as it was at the first time since the second one. Times are in milliseconds."""

    to_ms: int
    at_ms: int


def note_set_back(directory: str, to_ms: int) -> None:
    """Remember that the cluster is set back now. It is written before the data is exchanged: once too often does no harm."""
    every = [*_set_backs(directory), SetBack(to_ms, time.time_ns() // 1_000_000)]
    with open(os.path.join(directory, FILE), "w", encoding="utf-8") as file:
        json.dump(every, file)


def was_lost(directory: str, taken_ms: int) -> bool:
    """Return whether the cluster was set back beyond this time, after it.

    Raises:
        Failure: the file is damaged.
    """
    return any(each.to_ms < taken_ms <= each.at_ms for each in _set_backs(directory))


def _set_backs(directory: str) -> list[SetBack]:
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return [SetBack(int(to_ms), int(at_ms)) for to_ms, at_ms in json.load(file)]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise Failure(
            f"{path} is damaged: it has the times to which the cluster was set back",
            "remove it, if no topic has a table",
        ) from None
