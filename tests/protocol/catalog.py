"""Every message class by Kafka's name, and the data files that describe Kafka's behaviour."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ottla.protocol.api import APIS
from ottla.protocol.compile import encoder
from ottla.protocol.internal_topics import control_messages, metadata_records
from ottla.protocol.internal_topics.coordinator_records import SHARE_RECORDS, TRANSACTION_RECORDS, RecordTypes
from ottla.protocol.internal_topics.group_records import GROUP_RECORDS
from ottla.protocol.schema import info_of

DATA = Path(__file__).parent / "data"
JAVA = Path(__file__).parent / "java"

_GENERATED = "org.apache.kafka.coordinator.{}.generated."
_WIRE = "org.apache.kafka.common.message."
#: In the order of the data files.
_RECORDS: tuple[tuple[ModuleType | RecordTypes, str], ...] = (
    (metadata_records, "org.apache.kafka.common.metadata."),
    (GROUP_RECORDS, _GENERATED.format("group")),
    (TRANSACTION_RECORDS, _GENERATED.format("transaction")),
    (SHARE_RECORDS, _GENERATED.format("share")),
    (control_messages, _WIRE),
)
_ELSEWHERE = {
    "ProducerSnapshot": "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    "QuorumStateData": "org.apache.kafka.raft.generated.",
}


@cache
def requests_and_responses() -> dict[str, type[Any]]:
    return {cls.__name__: cls for api in APIS.values() for cls in (api.request, api.response)}


@cache
def records() -> dict[str, type[Any]]:
    """Messages that are not requests or responses."""
    return {name: cls for origin, _ in _RECORDS for name, cls in _messages_in(origin).items()}


def _messages_in(origin: ModuleType | RecordTypes) -> dict[str, type[Any]]:
    if isinstance(origin, dict):
        return {cls.__name__: cls for pair in origin.values() for cls in pair}
    return {name: cls for name, cls in vars(origin).items() if getattr(cls, "__message__", None) is not None}


def messages() -> dict[str, type[Any]]:
    return requests_and_responses() | records()


def every_version() -> list[tuple[type[Any], int]]:
    return [(cls, version) for cls in messages().values() for version in info_of(cls).versions.all()]


def java_names() -> dict[str, str]:
    """Return our class for Java's full class name."""
    names = {f"{_WIRE}{name}Data": name for name in requests_and_responses()}
    for origin, package in _RECORDS:
        for name in _messages_in(origin):
            names[_ELSEWHERE.get(name, package) + name] = name
    return names


class Golden(NamedTuple):
    """A message as Apache Kafka 4.3.1 wrote it. `json` is "-" if Kafka's JSON writer could not write it."""

    cls: type[Any]
    version: int
    variant: int
    data: bytes
    json: str


@cache
def golden() -> list[Golden]:
    text = lzma.decompress((DATA / "golden_messages.txt.xz").read_bytes()).decode()
    return [_golden(line) for line in text.splitlines()]


def _golden(line: str) -> Golden:
    name, version, variant, data, json = line.split("\t")
    known = messages()
    cls = known.get(name) or known[name.removesuffix("Data")]
    return Golden(cls, int(version), int(variant), bytes.fromhex(data), json)


def encode_versioned(obj: Any, version: int) -> bytes:
    """int16 version, then the message: the form of opaque bytes and of files."""
    pieces = [version.to_bytes(2, "big")]
    encoder(obj.__plain__, version)(obj, pieces)
    return b"".join(pieces)
