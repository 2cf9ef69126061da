"""Protobuf's text, parsed: a recursive descent over the language's grammar (proto2, proto3 and editions).

It accepts what protoc accepts. As in protoc, the place decides whether a word is a keyword: a field may be named `message`.
Names and numbers are checked later, on the descriptor.
"""

from __future__ import annotations

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import (
    ENUM_MAX,
    ENUM_MIN,
    TAG_MAX,
    Element,
    Enum,
    EnumValue,
    Extension,
    ExtensionRange,
    File,
    Import,
    MapField,
    Message,
    Method,
    OneOf,
    Option,
    Package,
    ProtoField,
    ProtoGroup,
    ProtoRange,
    Reserved,
    Service,
    is_message_set,
)
from ottla.registry.formats.proto_reader import Reader

#: The most messages within messages, as in protoc.
DEPTH_MAX = 31
EDITIONS = ("2023", "2024")
LABELS = ("optional", "required", "repeated")
MAX = -1  # stands for `max` until the kind of the range is known


def parse_proto(text: str) -> File:
    """Parse a .proto file.

    Raises:
        InvalidSchema: it is not valid; the message has the place.
    """
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    return _Parser(text).file()


class _Parser(Reader):
    """Parses the declarations of a file."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._file = File()

    # -- The file ------------------------------------------------------------------------------------------------------

    def file(self) -> File:
        self._head()
        elements = self._file.elements
        while self._next.kind != "end":
            if not self._take(";"):
                elements.append(self._file_element())
        if sum(isinstance(row, Package) for row in elements) > 1:
            self._fail("the file has several packages")
        return self._file

    def _head(self) -> None:
        if self._take("syntax"):
            self._expect("=")
            self._file.syntax = self._text_of_string()
            if self._file.syntax not in ("proto2", "proto3"):
                raise InvalidSchema(f"unexpected syntax: {self._file.syntax}")
        elif self._take("edition"):
            self._expect("=")
            self._file.edition = self._text_of_string()
            if self._file.edition not in EDITIONS:
                raise InvalidSchema(f"unexpected edition: {self._file.edition}")
        else:
            return
        self._expect(";")

    def _file_element(self) -> Element:
        if self._take("import"):
            kinds = ("public", "weak", "option") if self._file.edition >= "2024" else ("public", "weak")
            kind = self._word() if self._sees(*kinds) else ""
            name = self._text_of_string()
            self._expect(";")
            return Import(name, kind)
        if self._take("package"):
            name = self._dotted(leading_dot=False)
            self._expect(";")
            return Package(name)
        if self._take("service"):
            return Service(self._word(), self._body(self._service_element))
        declared = self._declared()
        return declared if declared is not None else self._fail(f"unexpected '{self._next.text}'")

    def _declared(self) -> Element | None:
        """Parse a declaration that is allowed in a file and in a message. Return None if there is none."""
        visibility = ""
        if self._file.edition >= "2024" and self._sees("export", "local"):
            visibility = self._word()
            if not self._sees("message", "enum"):
                self._fail("expected a message or an enum")
        if self._take("message"):
            return Message(self._word(), self._message_body(), visibility)
        if self._take("enum"):
            return Enum(self._word(), self._body(self._enum_element), visibility)
        if self._take("extend"):
            name = self._dotted()
            elements = self._body(self._extension_element)
            return Extension(name, elements) if elements else self._fail("an extension needs a field")
        return self._option() if self._take("option") else None

    # -- Messages ------------------------------------------------------------------------------------------------------

    def _message_body(self) -> list[Element]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSchema("the schema is nested too deeply")
        elements = self._body(self._message_element)
        self._depth -= 1
        last = ENUM_MAX - 1 if is_message_set(elements) else TAG_MAX
        for row in elements:
            if isinstance(row, Reserved | ExtensionRange):
                row.ranges = [part._replace(last=last) if part.last == MAX else part for part in row.ranges]
        return elements

    def _message_element(self) -> Element:
        declared = self._declared()
        if declared is not None:
            return declared
        if self._take("oneof"):
            name = self._word()
            elements = self._body(self._oneof_element)
            if not any(isinstance(row, ProtoField | ProtoGroup) for row in elements):
                self._fail("a oneof needs a field")
            return OneOf(name, elements)
        if self._take("extensions"):
            ranges = [self._range()]
            while self._take(","):
                ranges.append(self._range())
            options = self._bracketed()
            self._expect(";")
            return ExtensionRange(ranges, options)
        if self._take("reserved"):
            return self._reserved(signed=False)
        return self._field()

    def _oneof_element(self) -> Element:
        if self._take("option"):
            return self._option()
        if self._sees(*LABELS):
            self._fail("fields in oneofs have no labels")
        field = self._field()
        return self._fail("a oneof has no maps") if isinstance(field, MapField) else field

    def _extension_element(self) -> Element:
        field = self._field()
        return self._fail("an extension is no map") if isinstance(field, MapField) else field

    def _field(self) -> Element:
        label = self._word() if self._sees(*LABELS) else ""
        if self._sees("map") and self._tokens[self._at + 1].text == "<":
            return self._map(label)
        kind = self._dotted()
        if kind == "group":
            return self._group(label)
        name, number, options = self._word(), self._tag(), self._bracketed()
        self._expect(";")
        if label == "optional" and self._file.edition:
            self._fail("fields of an edition are optional by features.field_presence, not by a label")
        return ProtoField(name, number, kind, label, options)

    def _tag(self) -> int:
        self._expect("=")
        number = self._integer()
        return number if number <= ENUM_MAX else self._fail(f"the number of a field is {TAG_MAX} at most")

    def _group(self, label: str) -> ProtoGroup:
        name = self._word()
        if not name[0].isupper():
            self._fail("names of groups begin with a capital letter")
        if self._file.edition:
            self._fail("editions have no groups, but features.message_encoding = DELIMITED")
        number, options = self._tag(), self._bracketed()
        return ProtoGroup(name, number, label, options, self._message_body())

    def _map(self, label: str) -> MapField:
        if label:
            self._fail("maps have no labels")
        self._expect("map")
        self._expect("<")
        key = self._dotted()
        self._expect(",")
        value = self._dotted()
        self._expect(">")
        name, number, options = self._word(), self._tag(), self._bracketed()
        self._expect(";")
        return MapField(name, number, key, value, options)

    def _reserved(self, *, signed: bool) -> Reserved:
        ranges: list[ProtoRange] = []
        names: list[str] = []
        if self._next.kind == "string" and not self._file.edition:
            names = self._rows(self._text_of_string, ";")
        elif self._next.kind == "word" and self._file.edition:
            names = self._rows(self._word, ";")
        else:
            ranges = self._rows(lambda: self._range(signed=signed), ";")
        return Reserved(ranges, names)

    def _range(self, *, signed: bool = False) -> ProtoRange:
        first = self._integer(signed=signed)
        last = first
        is_spelled = self._take("to")
        if is_spelled:
            last = MAX if self._take("max") else self._integer(signed=signed)
            if signed and self._tokens[self._at - 1].text == "max":
                last = ENUM_MAX
        if last < first and (signed or last != MAX):
            self._fail("the end of a range is below its begin")
        if max(first, last) > ENUM_MAX or first < ENUM_MIN:
            self._fail("the range is too large")
        return ProtoRange(first, last, is_spelled)

    # -- Enums and services --------------------------------------------------------------------------------------------

    def _enum_element(self) -> Element:
        if self._take("option"):
            return self._option()
        if self._take("reserved"):
            return self._reserved(signed=True)
        name = self._word()
        self._expect("=")
        number = self._integer(signed=True)
        if not ENUM_MIN <= number <= ENUM_MAX:
            self._fail("the number of an enum's value has 32 bits")
        options = self._bracketed()
        self._expect(";")
        return EnumValue(name, number, options)

    def _service_element(self) -> Element:
        if self._take("option"):
            return self._option()
        self._expect("rpc")
        name = self._word()
        input_type, input_stream = self._side()
        self._expect("returns")
        output_type, output_stream = self._side()
        options = self._body(self._method_option) if self._sees("{") else []
        if self._tokens[self._at - 1].text != "}":
            self._expect(";")
        return Method(name, input_type, output_type, input_stream, output_stream, options)

    def _side(self) -> tuple[str, bool]:
        self._expect("(")
        stream = self._take("stream")
        name = self._dotted()
        self._expect(")")
        return name, stream

    def _method_option(self) -> Option:
        self._expect("option")
        return self._option()
