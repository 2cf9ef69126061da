"""Schemas are parsed and compared in separate processes with bounded time and memory, because any client may send a schema.

A process takes one request at a time, as parts of JSON, and responds with JSON (guarded_process.py). If it takes too long, it
is killed, and the next request starts another one. The registry's own process never parses a schema.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.registry.errors import RegistryError
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema
from ottla.registry.guarded_process import GuardedProcesses, ProcessEnded, serve
from ottla.registry.schema_records import Version
from ottla.registry.turns import Turns

#: The time limits of a registration (without the start of the process), and of a check, which can be repeated as often as a
#: client likes.
CHECK_S_MAX = 10.0
QUESTION_S_MAX = 5.0
PROCESSES = 2
#: A longer schema is not parsed. A record of Kafka has at most 1 MiB by default, and a schema is one record.
TEXT_CHARS_MAX = 1_000_000
#: An old schema is cut to this length in a message.
SHOWN_CHARS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A parsed schema: its canonical text, the requested form of the text, and why it is incompatible with earlier versions."""

    canonical: str
    formatted: str
    messages: list[str]


# -- In the registry -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A schema to parse, and the `earlier` versions to compare it with. Each of these comes with its dependencies.

    Equal questions have equal answers: a result is still valid if the state produces the same question again.
    """

    kind: str
    text: str
    dependencies: Mapping[str, str]
    normalize: bool = False
    form: str = ""
    strict: bool = True
    #: Whether the schema may become a new version. Then the defaults of Avro's fields are checked as well.
    is_new: bool = False
    level: str = "NONE"
    lenient: bool = False
    earlier: tuple[tuple[Version, Mapping[str, str]], ...] = ()

    def parts(self) -> Iterator[bytes]:
        """Yield the parts for the process: the question with numbers in place of texts, and each text once."""
        numbers: dict[str, int] = {}

        def number(text: str) -> int:
            return numbers.setdefault(text, len(numbers))

        def numbered(texts: Mapping[str, str]) -> dict[str, int]:
            return {name: number(text) for name, text in texts.items()}

        request = {
            "kind": self.kind,
            "text": number(self.text),
            "dependencies": numbered(self.dependencies),
            "normalize": self.normalize,
            "form": self.form,
            "strict": self.strict,
            "is_new": self.is_new,
            "level": self.level,
            "lenient": self.lenient,
            "earlier": [
                {"kind": row.kind, "text": number(row.text), "version": row.version, "dependencies": numbered(needed)}
                for row, needed in self.earlier
            ],
        }
        yield json.dumps(request).encode()
        for text in numbers:
            yield json.dumps(text).encode()


class Checker:
    """The processes. Each party uses one of them at a time, and waiting parties take turns."""

    def __init__(self, check_s: float = CHECK_S_MAX, question_s: float = QUESTION_S_MAX) -> None:
        self._check_s = check_s
        self._question_s = question_s
        self._processes = GuardedProcesses(__name__, max(check_s, question_s))
        self._turns = Turns(PROCESSES)

    async def check(self, question: Question, party: Hashable = "", *, is_write: bool = False) -> CheckedSchema:
        """Answer a question of a party. A write has more time.

        Raises:
            RegistryError: the schema is not valid, takes too long, or the party has too many requests waiting.
        """
        if len(question.text) > TEXT_CHARS_MAX:
            raise RegistryError("too_large")
        limit_s = self._check_s if is_write else self._question_s
        try:
            async with self._turns.turn(party), self._processes.taken() as process:
                await process.ask(question.parts(), limit_s)
                answer: dict[str, Any] = json.loads(await process.receive(limit_s))
        except ProcessEnded as fault:
            raise RegistryError("invalid_schema", f"the schema cannot be checked: {fault}") from None
        if "invalid" in answer:
            raise RegistryError("invalid_schema", answer["invalid"])
        return CheckedSchema(answer["canonical"], answer["formatted"], answer["messages"])

    async def close(self) -> None:
        await self._processes.close()


# -- In a process of its own ---------------------------------------------------------------------------------------------


def parse(kind: str, text: str, dependencies: Mapping[str, str]) -> ParsedSchema:
    """Parse a schema.

    `dependencies` are the texts of all schemas that it needs, by the names of their imports, each after those that this one
    needs itself.

    Raises:
        InvalidSchema: it does not parse.
    """
    # Each format is imported with its first schema: all formats together take half a second.
    if kind == "AVRO":
        from ottla.registry.formats.avro_schema import AvroSchema

        return AvroSchema(text, dependencies)
    if kind == "JSON":
        from ottla.registry.formats.json_schema import JsonSchema

        return JsonSchema(text, dependencies)
    from ottla.registry.formats.proto_schema import ProtobufSchema

    return ProtobufSchema(text, dependencies)


def incompatibilities(
    schema: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]], level: str, *, lenient: bool
) -> list[str]:
    """Return why a schema is incompatible with earlier versions, which are in their order; the list is empty if it is
    compatible.

    Without `_TRANSITIVE` only the last counts. BACKWARD: the new one reads what was written before; FORWARD: the reverse.
    """
    direction, _, transitive = level.partition("_")
    if direction == "NONE":
        return []
    for number, old in list(reversed(earlier))[: None if transitive else 1]:
        if schema.kind != old.kind:
            return ["Incompatible because of different schema type"]
        found: list[str] = []
        if direction in ("FORWARD", "FULL"):
            found += [_filled(text, "old", "new") for text in _reads(old, schema, lenient)]
        if direction in ("BACKWARD", "FULL"):
            found += [_filled(text, "new", "old") for text in _reads(schema, old, lenient)]
        if found:
            shown = old.canonical
            if len(shown) > SHOWN_CHARS_MAX:
                shown = f"<truncated> '{shown[:SHOWN_CHARS_MAX]}...'"
            return [*found, f"{{oldSchemaVersion: {number}}}", f"{{oldSchema: '{shown}'}}"]
    return []


def _check(schema: ParsedSchema, is_new: bool) -> None:
    from ottla.registry.formats import avro_schema

    if isinstance(schema, avro_schema.AvroSchema):
        schema.check(is_new=is_new)
    else:
        schema.check()


def _reads(reader: ParsedSchema, writer: ParsedSchema, lenient: bool) -> list[str]:
    from ottla.registry.formats import json_schema

    if isinstance(reader, json_schema.JsonSchema):
        return reader.incompatible(writer, lenient=lenient)
    return reader.incompatible(writer)


def _filled(text: str, reader: str, writer: str) -> str:
    return text.replace("{reader}", reader).replace("{writer}", writer)


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    try:
        schema = parse(request["kind"], request["text"], request["dependencies"])
        if request["strict"]:
            _check(schema, request["is_new"])
        canonical = schema.normalized() if request["normalize"] else schema.canonical
        canonical.encode()
        if request["normalize"]:
            schema = parse(request["kind"], canonical, request["dependencies"])
        earlier = [(row["version"], parse(row["kind"], row["text"], row["dependencies"])) for row in request["earlier"]]
        messages = incompatibilities(schema, earlier, request["level"], lenient=request["lenient"])
        formatted = schema.formatted(request["form"]) if request["form"] else canonical
    except InvalidSchema as fault:
        return {"invalid": str(fault)}
    except UnicodeEncodeError:
        return {"invalid": "the schema has half of a surrogate pair, which no text in UTF-8 can have"}
    except RecursionError:
        return {"invalid": "the schema is nested too deeply"}
    except MemoryError:
        return {"invalid": "the schema takes too much memory to be checked"}
    if request["level"] != "NONE" and messages:
        messages.append(f"{{validateFields: 'false', compatibility: '{request['level']}'}}")
    return {"canonical": canonical, "formatted": formatted, "messages": messages}


def answers_to(parts: list[bytes]) -> Iterator[bytes]:
    try:
        answer = answer_to(_with_texts(*map(json.loads, parts)))
    except Exception as fault:  # the message of any error of five libraries about a schema is for the user
        answer = {"invalid": f"{type(fault).__name__}: {fault}"[:1000]}
    yield json.dumps(answer).encode()


def _with_texts(request: dict[str, Any], *texts: str) -> dict[str, Any]:
    """Return a request in which texts replace their numbers."""
    for row in (request, *request["earlier"]):
        row["text"] = texts[row["text"]]
        row["dependencies"] = {name: texts[number] for name, number in row["dependencies"].items()}
    return request


if __name__ == "__main__":
    serve(answers_to)
