"""Writing one record to a topic: key, value, headers and partition.

Key and value are bytes, JSON, a tombstone, or JSON with a schema of the registry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.client.idempotence import SentBatch
from ottla.client.producer import ClusterProducer
from ottla.client.values import INT32_MAX, number_in
from ottla.console.schema_texts import is_of_topic
from ottla.console.site import ChangeDone, Site, query
from ottla.protocol.records.record import NewRecord, RecordHeaders

#: The forms of a key and a value, in the order of the page.
FORMS = ("text", "json", "schema", "hex", "null")
FORM_TEXTS = {
    "text": "text",
    "json": "JSON, checked",
    "schema": "JSON, by the schema of",
    "hex": "bytes in hex",
    "null": "null",
}
#: The page offers at most this many subjects and partitions.
CHOICES_MAX = 500


async def produce(request: Request) -> Response:
    """Write a record. GET shows the form, POST writes its record."""
    site: Site = request.app.state.site
    name = request.path_params["name"]

    async def page(fields: Mapping[str, str], fault: Failure | None = None) -> Response:
        return await _page(request, name, fields, fault)

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> ChangeDone:
        partition, offset = await _write(site, cluster, name, fields)
        place = {"partition": partition, "from": "offset", "at": offset, "limit": 1}
        return ChangeDone(
            f"the record is in partition {partition} at offset {offset}", query(f"/topics/{name}/records", **place)
        )

    if request.method == "GET":
        return await page(request.query_params)
    return await site.change(request, None, make, f"/topics/{name}/records", page)


async def _page(request: Request, name: str, fields: Mapping[str, str], fault: Failure | None) -> Response:
    site: Site = request.app.state.site
    snapshot = await site.snapshot_with(name)
    subjects = None
    if site.schemas is not None:
        subjects = await site.panels.show("subjects", site.schemas.subjects)
    known = [each for each in (subjects.value or () if subjects else ()) if is_of_topic(each, name)]

    def chosen(part: str) -> str:
        return fields.get(f"{part}_as", "") or ("schema" if f"{name}-{part}" in known else "text")

    return site.render(
        request,
        "produce.html",
        200 if fault is None else 422,
        name=name,
        tab="produce",
        fields=fields,
        fault=fault,
        forms={form: text for form, text in FORM_TEXTS.items() if form != "schema" or site.schemas is not None},
        chosen={"key": chosen("key"), "value": chosen("value")},
        subjects=subjects,
        known=known[:CHOICES_MAX],
        partitions=min(CHOICES_MAX, len(snapshot.topics[name])) if snapshot else 0,
    )


async def _write(site: Site, cluster: ClusterClient, name: str, fields: Mapping[str, str]) -> tuple[int, int]:
    """Write the record of a form, and return its partition and its offset.

    Raises:
        Failure: a field cannot be encoded, or the cluster rejects the record.
    """
    text = fields.get("partition", "")
    partition = number_in(text, 0, INT32_MAX) if text else None
    if text and partition is None:
        raise Failure(f"{text[:80]!r} is no partition", None, Kind.WRONG)
    key = await bytes_of(site, name, "key", fields)
    value = await bytes_of(site, name, "value", fields)
    record = NewRecord(key, value, time.time_ns() // 1_000_000, headers_of(fields.get("headers", "")))
    await cluster.partitions(
        name
    )  # otherwise a producer would create the topic, if it is gone and brokers create topics automatically
    placed: list[tuple[int, int]] = []

    def note(partition: int, offset: int, batch: SentBatch) -> None:
        placed.append((partition, offset))

    producer = ClusterProducer(cluster, name, on_acknowledged=note)
    await producer.start()
    await producer.send(record, partition)
    await producer.flush()
    return placed[0]


async def bytes_of(site: Site, name: str, part: str, fields: Mapping[str, str]) -> bytes | None:
    """Return the bytes of the key or the value of a form, None for null.

    Raises:
        Failure: the text does not have the chosen form.
    """
    form, text = fields.get(f"{part}_as", ""), fields.get(part, "").replace("\r\n", "\n")
    match form:
        case "null":
            if text:
                raise Failure(f"the {part} is to be null, and the form has a text for it", "empty it", Kind.WRONG)
            return None
        case "text":
            # An empty field means a record without a key: with an empty key, all such records would go to one partition.
            return text.encode() if text or part == "value" else None
        case "hex":
            try:
                return bytes.fromhex(text.removeprefix("0x"))
            except ValueError:
                raise Failure(f"the {part} is not hex", "for example 00 ff 1a", Kind.WRONG) from None
        case "json":
            return json_of(part, text)
        case "schema":
            if site.schemas is None:
                raise Failure("this console has no schema registry", "start it with --registry URL", Kind.WRONG)
            subject = fields.get(f"{part}_subject", "").strip() or f"{name}-{part}"
            return await site.schemas.encode(subject, text, fields.get(f"{part}_message", "").strip())
    raise Failure(f"{form[:80]!r} is no form of a {part}", f"it is one of {', '.join(FORMS)}", Kind.WRONG)


def json_of(part: str, text: str) -> bytes:
    """Return the bytes of a text that has to be JSON. The text is not changed, so that numbers keep their digits."""
    try:
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except RecursionError:
        raise Failure(f"the {part} is nested too deeply", None, Kind.WRONG) from None
    except json.JSONDecodeError as fault:
        cause = f"the {part} is no JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}"
        raise Failure(cause, "choose the form text for a value that is not JSON", Kind.WRONG) from None
    return text.strip().encode()


def _no_constant(name: str) -> None:
    """Reject NaN and Infinity: Python's parser takes them, and no other one does."""
    raise json.JSONDecodeError(f"{name} is none of its values", name, 0)


def headers_of(text: str) -> RecordHeaders:
    """Return the headers in lines NAME=VALUE. A line without = is a header with the value null.

    Raises:
        Failure: a line has no name.
    """
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = line.partition("=")
        if not name.strip():
            raise Failure(f"the header {line[:80]!r} has no name", "a line is NAME=VALUE", Kind.WRONG)
        found.append((name.strip(), value.strip().encode() if equals else None))
    return tuple(found)


ROUTES: list[Any] = [Route("/topics/{name}/produce", produce, methods=["GET", "POST"])]
