"""The JSON files of kafka-delete-records, kafka-leader-election and kafka-reassign-partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ottla.cli.shims.tool import Unusable
from ottla.client.partitions import TopicPartition

VERSION = 1


def read_object(path: str, no_json: str = "The input string is not a valid JSON") -> dict[str, object]:
    """Read a JSON object of version 1. A file without a version counts as version 1.

    Raises:
        Unusable: it cannot be read, is no JSON (`no_json` says so), is no object, or is of another version.
    """
    try:
        with open(path) as file:
            found = json.load(file)
    except FileNotFoundError:
        raise Unusable(f"Unable to read file {path}") from None
    except OSError as failure:
        raise Unusable(f"Unable to read file {path}: {failure.strerror}") from None
    except ValueError:
        raise Unusable(no_json) from None
    if not isinstance(found, dict):
        raise Unusable(f"Expected JSON object, received {json.dumps(found, separators=(',', ':'))}")
    version = found.get("version", VERSION)
    if version != VERSION:
        raise Unusable(f"Not supported version field value {version}")
    return found


def rows_of(found: dict[str, object], field: str, *keys: str) -> list[dict[str, object]]:
    """Return the objects of a list, each of which has these keys.

    Raises:
        Unusable: a key is missing.
    """
    rows = found.get(field)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unusable(f"Missing {field} field")
    for row in rows:
        for key in keys:
            if key not in row:
                raise Unusable(f"No such field exists: `{key}`")
    return rows


def place_of(row: dict[str, object]) -> TopicPartition:
    """Return the topic and partition of a row."""
    index = row["partition"]
    if not isinstance(index, int):
        raise Unusable(f"Expected `Integer` value, received {json.dumps(index)}")
    return str(row["topic"]), index


def repeated(places: Sequence[TopicPartition]) -> list[str]:
    """Return the names of the partitions that occur more than once."""
    return shown({place for place in places if places.count(place) > 1})


def shown(places: Iterable[TopicPartition]) -> list[str]:
    return [f"{name}-{index}" for name, index in sorted(places)]
