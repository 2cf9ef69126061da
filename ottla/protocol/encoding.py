"""Writes the source of encoders: one straight-line function per message class and version.

An encoder appends pieces of bytes to a list. Record batches become pieces as they are, without a copy. A field that
the version lacks must be at its default unless it is ignorable.
"""

from __future__ import annotations

from typing import NoReturn

from ottla.protocol import primitives
from ottla.protocol.errors import ProtocolError, UnsupportedVersion
from ottla.protocol.schema import FIXED, ZERO_UUID, Field, Struct, WireType
from ottla.protocol.source import NUMBERS, Source, differs_from_default, present


def _cannot_hold(where: str, version: int) -> NoReturn:
    raise UnsupportedVersion(f"{where} is set, but version {version} has no such field")


def _null(where: str) -> NoReturn:
    raise ProtocolError(f"{where} is None, which this version cannot say")


_SCOPE: dict[str, object] = {
    "ZERO_UUID": ZERO_UUID,
    "uvarint": primitives.uvarint,
    "string_length": primitives.string_length,
    "numbers": primitives.numbers,
    "cannot_hold": _cannot_hold,
    "null": _null,
}


class Encoding(Source):
    """The source of encode(obj, out)."""

    names = _SCOPE

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.null = b"\xff"
        self.out, self.write = "out", "write"  # the list that takes the pieces, and its append

    def whole(self) -> str:
        self.struct(self.cls, "obj")
        self.flush()
        body = "\n".join(self.lines)
        return f"def encode(obj, out):\n    write = out.append\n{body}\n"

    def packed(self, extra: tuple[str, str] | None = None) -> str:
        """Return the source of the expression that packs the run, with one further value if given."""
        run = [*self.run, extra] if extra else self.run
        codes = "".join(code for code, _ in run)
        if codes.strip("x") == "":
            return repr(bytes(len(codes)))
        arguments = ", ".join(expression for code, expression in run if code != "x")
        return f"{self.codec(codes, 'pack')}({arguments})"

    def flush(self) -> None:
        """Write the run that is open."""
        if self.run:
            self.line(f"{self.write}({self.packed()})")
            self.run = []

    def prefix(self, count: str, code: str, long_form: str = "uvarint") -> None:
        """Write a length (compact: length plus one) after the run."""
        if not self.flexible:
            self.run.append((code, count))
            self.flush()
            return
        before = f"{self.packed()} + " if self.run else ""
        self.line(f"{self.write}({self.packed(('B', count))} if {count} < 128 else {before}{long_form}({count}))")
        self.run = []

    def struct(self, cls: type[Struct], obj: str) -> None:
        plain, tagged, absent = present(cls, self.version)
        outer, self.where = self.where, cls.__name__
        for field in absent:
            if not field.ignorable:
                self.line(f"if {differs_from_default(self, field, f'{obj}.{field.name}')}:")
                self.line(f"    cannot_hold({f'{self.where}.{field.name}'!r}, {self.version})")
        for field in plain:
            self.field(field, f"{obj}.{field.name}")
        if self.flexible:
            self.tags(tagged, obj)
        self.where = outer

    def field(self, field: Field, value: str) -> None:
        outer, self.where = self.where, f"{self.where}.{field.name}"
        # A tagged struct says with a varint whether it is null, any other one with an int8 that is negative.
        self.null = b"\0" if field.tag is not None else b"\xff"
        self.value(field.type, value, self.version in field.nullable, bool(field.nullable))
        self.where = outer

    def value(self, wire_type: WireType, value: str, nullable: bool, may_be_none: bool) -> None:
        """Code of a value. `may_be_none`: the field is nullable in another version, so that this version must reject None."""
        kind = wire_type.name
        if kind in FIXED:
            self.run.append((FIXED[kind], value))
            return
        local = self.name({"str": "s", "struct": "o"}.get(kind, "a"))
        self.line(f"{local} = {value}")
        if may_be_none and not nullable:
            self.line(f"if {local} is None:", f"    null({self.where!r})")
        if kind == "struct":
            self.struct_value(wire_type, local, nullable)
        elif kind == "list":
            self.array(wire_type, local, nullable)
        elif kind == "Records":
            self.records(local, nullable)
        else:
            self.octets(kind, local, nullable)

    def octets(self, kind: str, local: str, nullable: bool) -> None:
        """A string, or bytes of a known length."""
        count = self.name("n")
        plus = " + 1" if self.flexible else ""
        encoded = [f"{local} = {local}.encode()"] if kind == "str" else []
        if nullable:
            self.line(f"if {local} is None:", f"    {count} = {0 if self.flexible else -1}")
            self.line("else:")
            self.depth += 1
        self.line(*encoded, f"{count} = len({local}){plus}")
        if kind == "str" and not self.flexible:
            self.line(f"if {count} > {primitives.STRING_BYTES_MAX}:")
            self.line(
                f"    string_length({count} + 1)"
            )  # raises ProtocolError; a Struct would raise an error of its own
        if nullable:
            self.depth -= 1
        self.prefix(count, "h" if kind == "str" else "i", "string_length" if kind == "str" else "uvarint")
        if nullable:
            self.line(f"if {local}:", f"    {self.write}({local})")
        else:
            self.line(f"{self.write}({local})")

    def records(self, local: str, nullable: bool) -> None:
        """The count of all pieces, then the pieces as they are."""
        count = self.name("n")
        plus = " + 1" if self.flexible else ""
        self.line(f"if {local} is None:")
        self.line(f"    {count} = {0 if self.flexible else -1}" if nullable else f"    null({self.where!r})")
        self.line(f"elif {local}.__class__ is list:", f"    {count} = sum(map(len, {local})){plus}")
        self.line("else:", f"    {count} = len({local}){plus}", f"    {local} = ({local},)")
        self.prefix(count, "i")
        self.line(f"if {local}:", f"    {self.out}.extend({local})")

    def struct_value(self, wire_type: WireType, local: str, nullable: bool) -> None:
        assert wire_type.struct is not None
        if not nullable:
            self.struct(wire_type.struct, local)
            return
        self.flush()
        self.line(f"if {local} is None:", f"    {self.write}({self.null!r})")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.struct(wire_type.struct, local)
            self.flush()

    def array(self, wire_type: WireType, local: str, nullable: bool) -> None:
        item = wire_type.item
        assert item is not None
        count = self.name("n")
        plus = " + 1" if self.flexible else ""
        null = f"{0 if self.flexible else -1} if {local} is None else " if nullable else ""
        self.line(f"{count} = {null}len({local}){plus}")
        self.prefix(count, "i")
        if item.name in NUMBERS or item.name == "uuid":
            pieces = f"numbers({NUMBERS[item.name]!r}, {local})" if item.name in NUMBERS else f'b"".join({local})'
            self.line(f"if {local}:", f"    {self.write}({pieces})")
            return
        element = self.name("e")
        with self.block(f"for {element} in {local} or ():" if nullable else f"for {element} in {local}:"):
            if item.struct is not None:
                self.struct(item.struct, element)
            else:
                self.value(item, element, False, False)
            self.flush()

    def tags(self, tagged: list[Field], obj: str) -> None:
        """Write the tag section: nearly always the single byte 0, which then ends the run."""
        if not tagged:
            self.run.append(("x", ""))
            return
        tests = []
        for field in tagged:
            local = self.name("t")
            self.line(f"{local} = {obj}.{field.name}")
            tests.append((field, local, differs_from_default(self, field, local)))
        with self.block(f"if {' or '.join(test for _, _, test in tests)}:"):
            run = [*self.run]
            self.flush()
            count = " + ".join(f"(1 if {test} else 0)" for _, _, test in tests)
            self.line(f"{self.write}(uvarint({count}))")
            for field, local, test in tests:
                with self.block(f"if {test}:"):
                    self.tagged(field, local)
        self.run = [*run, ("x", "")]
        with self.block("else:"):
            self.flush()

    def tagged(self, field: Field, local: str) -> None:
        """Tag, size, value; the size is known only when the value's pieces are."""
        outer = self.out, self.write
        self.out, self.write = self.name("part"), self.name("write")
        self.line(f"{self.out} = []", f"{self.write} = {self.out}.append")
        self.field(field, local)
        self.flush()
        part = self.out
        self.out, self.write = outer
        self.line(f"{self.write}({primitives.uvarint(field.tag or 0)!r} + uvarint(sum(map(len, {part}))))")
        self.line(f"{self.out}.extend({part})")
