"""The tokens of a .proto text for a parser, and the parts that all declarations have: options and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import Element, Identifier, Literal, Number, Option, Value
from ottla.registry.formats.proto_tokens import ProtoToken, integer, syntax_error, tokens_of, unescaped

#: The most values within values.
VALUE_DEPTH_MAX = 100


class Reader:
    """A position in the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0

    # -- Tokens --------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> ProtoToken:
        return self._tokens[self._at]

    def _fail(self, reason: str) -> NoReturn:
        raise syntax_error(self._text, self._next.at, reason)

    def _sees(self, *texts: str) -> bool:
        return self._next.kind in ("word", "sign") and self._next.text in texts

    def _take(self, text: str) -> bool:
        """Take a word or a sign if it is the next one."""
        if not self._sees(text):
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._fail(f"expected '{text}', found '{self._next.text}'")

    def _of(self, kind: str, what: str) -> str:
        token = self._next
        if token.kind != kind:
            self._fail(f"expected {what}, found '{token.text}'")
        self._at += 1
        return token.text

    def _word(self) -> str:
        return self._of("word", "a name")

    def _integer(self, *, signed: bool = False) -> int:
        minus = signed and self._take("-")
        value = integer(self._of("int", "an integer"))
        return -value if minus else value

    def _string(self) -> bytes:
        """Take consecutive literals."""
        parts: list[bytes] = []
        while self._next.kind == "string" or not parts:
            token = self._of("string", "a string")
            try:
                parts.append(unescaped(token))
            except ValueError as fault:
                self._at -= 1
                self._fail(str(fault))
        return b"".join(parts)

    def _text_of_string(self) -> str:
        value = self._string()
        try:
            return value.decode()
        except UnicodeDecodeError:
            self._at -= 1
            self._fail("the string is no UTF-8")

    def _dotted(self, *, leading_dot: bool = True) -> str:
        parts = ["."] if leading_dot and self._take(".") else []
        parts.append(self._word())
        while self._take("."):
            parts += [".", self._word()]
        return "".join(parts)

    def _body(self, element: Callable[[], Element]) -> list[Element]:
        """Take the elements in braces. `element` returns one, or a list of them."""
        self._expect("{")
        found: list[Element] = []
        while not self._take("}"):
            if self._next.kind == "end":
                self._fail("expected '}' before the end")
            if not self._take(";"):
                found.append(element())
        return found

    def _rows(self, one: Callable[[], Any], last: str) -> list[Any]:
        """Take elements with commas between them."""
        found = [one()]
        while self._take(","):
            found.append(one())
        self._expect(last)
        return found

    # -- Options -------------------------------------------------------------------------------------------------------

    def _bracketed(self) -> list[Option]:
        return self._rows(self._assignment, "]") if self._take("[") else []

    def _option(self) -> Option:
        made = self._assignment()
        self._expect(";")
        return made

    def _assignment(self) -> Option:
        parts = [self._option_part()]
        while self._take("."):
            parts.append(self._option_part())
        self._expect("=")
        return Option(".".join(parts), self._value(0))

    def _option_part(self) -> str:
        if not self._take("("):
            return self._word()
        name = self._dotted()
        self._expect(")")
        return f"({name})"

    def _value(self, depth: int) -> Value:
        if depth > VALUE_DEPTH_MAX:
            raise InvalidSchema("the schema is nested too deeply")
        if self._next.kind == "string":
            return self._string()
        if self._take("{"):
            return self._literal("}", depth)
        if depth and self._take("<"):
            return self._literal(">", depth)
        if self._take("["):
            return [] if self._take("]") else self._rows(lambda: self._value(depth + 1), "]")
        sign = "-" if self._take("-") else ""
        if self._next.kind in ("int", "float"):
            number = Number(sign + self._next.text)
            self._at += 1
            return number
        if sign and not self._sees("inf", "nan", "infinity"):
            self._fail(f"expected a number, found '{self._next.text}'")
        return Identifier(sign + self._word())

    def _literal(self, last: str, depth: int) -> Literal:
        fields: list[tuple[str, Value]] = []
        while not self._take(last):
            name = self._literal_name()
            if not self._take(":") and not self._sees("{", "<", "["):
                self._fail(f"expected ':', found '{self._next.text}'")
            fields.append((name, self._value(depth + 1)))
            if not self._take(","):
                self._take(";")
        return Literal(tuple(fields))

    def _literal_name(self) -> str:
        if not self._take("["):
            return self._word()
        name = self._dotted()
        if self._take("/"):
            name += "/" + self._dotted()
        self._expect("]")
        return f"[{name}]"
