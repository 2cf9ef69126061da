"""Writes the source of decoders: one straight-line function per message class and version.

Bounds: string and bytes slices cannot reach beyond the buffer, so their ends are checked once, after the last field;
array counts are checked against the bytes left before the first element is made. All arrays of a request share a budget of elements,
because it is decoded in one turn of the event loop and before anybody is authorized: with a bound for each array, groups of a million
topics of three bytes took 0.7 s for 3 MB and 44 bytes of memory for each. Whatever the bytes are, a decoder returns or raises
MalformedMessage.
"""

from __future__ import annotations

import struct

from ottla.protocol import primitives
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.schema import FIXED, ZERO_UUID, Field, Struct, WireType, fields
from ottla.protocol.source import NUMBERS, Source, default_expression, least_size, present, run_size


def _null(where: str) -> None:
    raise MalformedMessage(f"{where} is null")


def _too_many(where: str, count: int) -> None:
    raise MalformedMessage(f"{where}: {count} elements are not in the bytes left, or more than allowed")


def _tag_overrun(where: str) -> None:
    raise MalformedMessage(f"{where}: a tagged field's size does not fit")


_SCOPE: dict[str, object] = {
    "ZERO_UUID": ZERO_UUID,
    "MalformedMessage": MalformedMessage,
    "struct_error": struct.error,
    "uvarint": primitives.read_uvarint,
    "more": primitives.read_uvarint_rest,
    "more_string": primitives.read_string_length,
    "skip_tags": primitives.skip_tags,
    "numbers": primitives.read_numbers,
    "uuids": primitives.read_uuids,
    "new": object.__new__,
    "null": _null,
    "too_many": _too_many,
    "tag_overrun": _tag_overrun,
}


#: The elements of all arrays of a request together. To decode and to answer one takes 2 to 5 us, and handlers that do not work in parts
#: (broker/long_work.py) do it in one turn of the event loop. A number or an id counts as an eighth of an element, unless it is the number
#: of a partition: each partition has an element in the response.
ELEMENTS_MAX = 10_000
#: The elements of a request about topics or partitions: 10,000 topics of a partition each. Members of groups that work with Apache Kafka stay below it:
#: an OffsetCommit of more than some 13,000 partitions is a batch that it does not take.
TOPIC_ELEMENTS_MAX = 20_000
OTHER_LIMITS = {
    # Requests of nodes, which need a higher limit: a follower asks a leader for all of its partitions when its session begins,
    # and a broker may change the ISR of all partitions that it leads.
    "FetchRequest": 40_000,
    "AlterPartitionRequest": 100_000,
    "AssignReplicasToDirsRequest": 100_000,
    # An element of these takes 10 us.
    "DescribeShareGroupOffsetsRequest": 10_000,
    "DescribeTopicPartitionsRequest": 10_000,
    # These fields are about the one partition of the metadata log.
    "VoteRequest": 1_000,
    "BeginQuorumEpochRequest": 1_000,
    "EndQuorumEpochRequest": 1_000,
    "DescribeQuorumRequest": 1_000,
    "FetchSnapshotRequest": 1_000,
}


def elements_max(cls: type[Struct]) -> int:
    """Return the budget of a request."""
    other = OTHER_LIMITS.get(cls.__name__)
    if other is not None:
        return other
    return TOPIC_ELEMENTS_MAX if any(map(_lists_topics, fields(cls))) else ELEMENTS_MAX


def _lists_topics(field: Field) -> bool:
    item = field.type.item
    if item is None:
        return False
    inner = () if item.struct is None else fields(item.struct)
    return "topic" in field.name or not is_cheap(field.name) or any(map(_lists_topics, inner))


def is_cheap(field: str) -> bool:
    """Return True if numbers or ids of this name count as an eighth."""
    return "partition" not in field


class Decoding(Source):
    """The source of decode(buf, pos, end) -> (object, position after it)."""

    names = _SCOPE

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.null = "< 0"
        #: True for requests: responses of peers, and files, are bounded by what was asked for.
        self.has_budget = cls.__name__.endswith("Request")

    def whole(self) -> str:
        self.depth = 2
        obj = self.struct(self.cls)
        self.flush()
        body = "\n".join(self.lines)
        if self.has_budget:
            body = f"        left = {elements_max(self.cls)}\n{body}"
        title = f"{self.cls.__name__} v{self.version}"
        return (
            f"def decode(buf, pos, end):\n    try:\n{body}\n"
            f"    except (IndexError, struct_error, UnicodeDecodeError) as error:\n"
            f'        raise MalformedMessage(f"{title}: {{error}}") from error\n'
            f"    if pos > end:\n"
            f'        raise MalformedMessage("{title}: cut short")\n'
            f"    return {obj}, pos\n"
        )

    def flush(self) -> None:
        """Read the run that is open."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        self.run = []
        if codes in ("B", "?"):
            value = "buf[pos]" if codes == "B" else "buf[pos] != 0"
        else:
            targets += "," if "," not in targets else ""
            value = f"{self.codec(codes, 'unpack_from')}(buf, pos)"
        self.line(f"{targets} = {value}", f"pos += {run_size(codes)}")

    def prefix(self, code: str, name: str) -> str:
        """Read a length or presence byte at the end of the run; give the variable that holds it."""
        variable = self.name(name)
        self.run.append((code, variable))
        self.flush()
        return variable

    def struct(self, cls: type[Struct]) -> str:
        """Read a struct into a new local variable."""
        obj = self.name("o")
        self.line(f"{obj} = new({self.refer(cls.__name__, cls)})")
        plain, tagged, absent = present(cls, self.version)
        outer, self.where = self.where, cls.__name__
        for field in absent + tagged:
            self.line(f"{obj}.{field.name} = {default_expression(self, field)}")
        for field in plain:
            self.field(field, f"{obj}.{field.name}")
        if self.flexible:
            self.tags(tagged, obj)
        self.where = outer
        return obj

    def field(self, field: Field, target: str) -> None:
        outer, self.where = self.where, f"{self.where}.{field.name}"
        # A tagged struct says with a varint whether it is null, 0 or 1; any other one with an int8 that is negative.
        self.null = "<= 0" if field.tag is not None else "< 0"
        self.value(field.type, target, self.version in field.nullable)
        self.where = outer

    def value(self, wire_type: WireType, target: str, nullable: bool) -> None:
        kind = wire_type.name
        if kind in FIXED:
            self.run.append((FIXED[kind], target))
        elif kind == "struct":
            self.struct_value(wire_type, target, nullable)
        elif kind == "list":
            self.array(wire_type, target, nullable)
        elif self.flexible:
            self.compact(kind, target, nullable)
        else:
            count = self.prefix("h" if kind == "str" else "i", "n")
            self.sliced(f"if {count} >= 0:", f"pos + {count}", kind, target)
            self.otherwise_null(target, nullable or kind == "Records")

    def sliced(self, test: str, stop: str, kind: str, target: str) -> None:
        text = {"str": 'str(buf[pos:stop], "utf-8")', "bytes": "bytes(buf[pos:stop])"}
        value = text.get(kind, "memoryview(buf)[pos:stop]")
        self.line(test, f"    stop = {stop}", f"    {target} = {value}", "    pos = stop")

    def compact(self, kind: str, target: str, nullable: bool) -> None:
        count = self.prefix("B", "n")
        more = "more_string" if kind == "str" else "more"
        self.line(f"if {count} > 127:", f"    {count}, pos = {more}(buf, pos, {count})")
        self.sliced(f"if {count}:", f"pos + {count} - 1", kind, target)
        self.otherwise_null(target, nullable)

    def otherwise_null(self, target: str, nullable: bool) -> None:
        self.line("else:", f"    {target} = None" if nullable else f"    null({self.where!r})")

    def struct_value(self, wire_type: WireType, target: str, nullable: bool) -> None:
        assert wire_type.struct is not None
        if not nullable:
            obj = self.struct(wire_type.struct)
            self.line(f"{target} = {obj}")
            return
        null = self.null
        self.line(f"if {self.prefix('b', 'n')} {null}:", f"    {target} = None")
        with self.block("else:"):
            obj = self.struct(wire_type.struct)
            self.flush()
            self.line(f"{target} = {obj}")

    def array(self, wire_type: WireType, target: str, nullable: bool) -> None:
        """The count, its check against the bytes that are there, the elements."""
        item = wire_type.item
        assert item is not None
        count = self.prefix("B" if self.flexible else "i", "n")
        if self.flexible:
            self.line(f"if {count} > 127:", f"    {count}, pos = more(buf, pos, {count})")
            self.line(f"{count} -= 1")
        size = max(1, least_size(item, self.version, self.flexible))
        factor = "" if size == 1 else f" * {size}"
        with self.block(f"if {count} > 0:"):
            self.line(f"if {count}{factor} > end - pos or {count} > {primitives.ARRAY_ITEMS_MAX}:")
            self.line(f"    too_many({self.where!r}, {count})")
            if self.has_budget:
                is_number = item.name in NUMBERS or item.name == "uuid"
                share = f"{count} >> 3" if is_number and is_cheap(self.where.rpartition(".")[2]) else count
                self.line(f"left -= {share}", "if left < 0:", f"    too_many({self.where!r}, {count})")
            self.items(item, target, count)
        self.line(f"elif {count} == 0:", f"    {target} = []")
        self.otherwise_null(target, nullable)

    def items(self, item: WireType, target: str, count: str) -> None:
        if item.name in NUMBERS:
            code = NUMBERS[item.name]
            self.line(f"{target}, pos = numbers({code!r}, {run_size(code)}, buf, pos, {count})")
            return
        if item.name == "uuid":
            self.line(f"{target}, pos = uuids(buf, pos, {count})")
            return
        items = self.name("items")
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({count}):"):
            if item.struct is not None:
                element = self.struct(item.struct)
            else:
                element = self.name("item")
                self.value(item, element, False)
            self.flush()
            self.line(f"{items}.append({element})")

    def tags(self, tagged: list[Field], obj: str) -> None:
        count = self.prefix("B", "tags")
        if not tagged:
            self.line(f"if {count}:", f"    pos = skip_tags(buf, pos, end, {count})")
            return
        tag, stop = self.name("tag"), self.name("stop")
        with self.block(f"if {count}:"):
            self.line(f"if {count} > 127:", f"    {count}, pos = more(buf, pos, {count})")
            self.line(f"if {count} > {primitives.TAGGED_FIELDS_MAX}:", f"    too_many({self.where!r}, {count})")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, pos = uvarint(buf, pos)", f"{stop}, pos = uvarint(buf, pos)", f"{stop} += pos")
                self.line(f"if {stop} > end:", f"    tag_overrun({self.where!r})")
                for number, field in enumerate(tagged):
                    with self.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                        self.field(field, f"{obj}.{field.name}")
                        self.flush()
                        self.line(f"if pos != {stop}:", f"    tag_overrun({self.where!r})")
                self.line("else:", f"    pos = {stop}")
