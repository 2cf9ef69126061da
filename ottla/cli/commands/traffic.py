"""The command `ottla traffic`: it prints the messages in a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, BinaryIO, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import run
from ottla.cli.errors import OUTPUT, USAGE, CommandFailed
from ottla.cli.output import escaped_json, note, print_json, printable
from ottla.client.failures import did_you_mean
from ottla.protocol.api import APIS
from ottla.traffic.capture import is_capture, packets_of, segment_of
from ottla.traffic.conversation import Conversation, TrafficFilter, errors_named
from ottla.traffic.entries import EntryReader
from ottla.traffic.masking import Masking
from ottla.traffic.streams import entries_of

app = App("traffic", "Print recorded traffic, message by message.")

main = partial(run, app)


@app.default
def traffic(
    file: str,
    /,
    *,
    api: Annotated[list[str] | None, Parameter(help="Only messages of these APIs, such as Fetch.")] = None,
    client: Annotated[list[str] | None, Parameter(help="Only messages of these client ids.")] = None,
    connection: Annotated[list[int] | None, Parameter(help="Only these connections, by number.")] = None,
    topic: Annotated[list[str] | None, Parameter(help="Only messages that name one of these topics.")] = None,
    errors: Annotated[bool, Parameter(help="Only responses with an error code, and what cannot be read.")] = False,
    output: Annotated[
        Literal["text", "json"], Parameter(name=("--output", "-o"), help="A line of text, or of JSON, for each.")
    ] = "text",
) -> None:
    """Print the messages of FILE, a recording of `ottla record` or a capture of packets (pcap, pcapng): API, version and fields."""
    wanted = TrafficFilter(
        None if api is None else frozenset(map(_api, api)),
        None if client is None else frozenset(client),
        None if connection is None else frozenset(connection),
        None if topic is None else frozenset(topic),
        errors_only=errors,
    )
    show = print_json if output == "json" else _print_line
    try:
        if _is_capture(file):
            with _readable(file) as source:
                segments = filter(None, map(segment_of, packets_of(source.read, file)))
                entries = map(Masking().entry, entries_of(segments, note))
                for row in Conversation(0, wanted).rows(entries):
                    show(row)
        else:
            with opened(file) as reader:
                for row in Conversation(reader.begun_ms, wanted).rows(reader):
                    show(row)
                if reader.torn_at is not None:
                    note(f"{file} ends within an entry, at byte {reader.torn_at}")
    except BrokenPipeError:
        OUTPUT.drop()
    OUTPUT.flush()


def _is_capture(path: str) -> bool:
    with _readable(path) as file:
        return is_capture(file.read(4))


@contextmanager
def opened(path: str) -> Iterator[EntryReader]:
    """Open a recording.

    Raises:
        CommandFailed: it cannot be read.
        TrafficFileError: the file is no recording.
    """
    with _readable(path) as file:
        yield EntryReader(file.read, path)


@contextmanager
def _readable(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise CommandFailed(f"{path} cannot be read: {failure.strerror}", None, USAGE) from None


def _api(name: str) -> str:
    names = {each.name.lower(): each.name for each in APIS.values()}
    found = name.replace("_", "").lower()
    if found not in names:
        raise CommandFailed(
            f"there is no API {name!r}", did_you_mean(name, names.values()) or "docs/APIS.md has them", USAGE
        )
    return found


def _print_line(row: Mapping[str, Any]) -> None:
    at = datetime.fromtimestamp(row["time_ms"] / 1000, UTC).strftime("%H:%M:%S.%f")
    number = f"{at} c{row['connection']}"
    match row["kind"]:
        case "opened":
            text = f"opened by {row['client']} to {row['broker']}" + (
                f" (node {row['node']})" if row["node"] >= 0 else ""
            )
        case "lost":
            text = f"{row['frames']} frames lost here: the disk was too slow"
        case "closed":
            text = "closed"
        case _:
            text = _message(row)
    print(printable(f"{number} {text}"))


def _message(row: Mapping[str, Any]) -> str:
    parts = ["->" if row["kind"] == "request" else "<-", f"{row['api']} v{row['version']} #{row['correlation_id']}"]
    if "latency_ms" in row:
        parts.append(f"{row['latency_ms']:.1f} ms")
    if row["kind"] == "request" and row.get("client_id"):
        parts.append(row["client_id"])
    parts += errors_named(row.get("message"))
    if row.get("masked"):
        parts.append("(masked)")
    if "message" in row:
        parts.append(escaped_json(json.dumps(row["message"], ensure_ascii=False, separators=(",", ":"))))
    else:
        parts.append(f"{row['bytes']} bytes: {row['unreadable']} {row.get('hex', '')}".rstrip())
    return " ".join(parts)
