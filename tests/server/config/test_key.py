"""Texts become values and texts again, as in Kafka; the expected results come from Kafka's ConfigDef."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.key import ConfigError, Type, java_double, parse, to_text

GOOD = [
    (Type.INT, "+5", "5"),
    (Type.INT, " 5 ", "5"),
    (Type.BOOLEAN, "TRUE", "true"),
    (Type.STRING, " a b ", "a b"),
    (Type.LIST, " a , b ,c ", "a,b,c"),
    (Type.LIST, "", ""),
    (Type.LIST, " ", ""),
    (Type.LIST, "a,,b", "a,,b"),
    (Type.LIST, ",", ","),
    (Type.DOUBLE, "1e3", "1000.0"),
    (Type.DOUBLE, "NaN", "NaN"),
    (Type.DOUBLE, "1d", "1.0"),
    (Type.DOUBLE, " .5", "0.5"),
    (Type.PASSWORD, " x ", "[hidden]"),
]
BAD = [
    (Type.INT, "5.0", "Invalid value 5.0 for configuration n: Not a number of type INT"),
    (Type.INT, "0x5", "Invalid value 0x5 for configuration n: Not a number of type INT"),
    (Type.INT, "٣", "Invalid value ٣ for configuration n: Not a number of type INT"),
    (Type.INT, "2147483648", "Invalid value 2147483648 for configuration n: Not a number of type INT"),
    (Type.LONG, "1_0", "Invalid value 1_0 for configuration n: Not a number of type LONG"),
    (Type.LONG, "9" * 5000, "Invalid value " + "9" * 5000 + " for configuration n: Not a number of type LONG"),
    (Type.SHORT, "40000", "Invalid value 40000 for configuration n: Not a number of type SHORT"),
    (Type.BOOLEAN, "", "Invalid value  for configuration n: Expected value to be either true or false"),
    (Type.BOOLEAN, "yes", "Invalid value yes for configuration n: Expected value to be either true or false"),
    (Type.DOUBLE, "x", "Invalid value x for configuration n: Not a number of type DOUBLE"),
]
DOUBLES = [
    (0.5, "0.5"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (0.05, "0.05"),
    (1000.0, "1000.0"),
    (1e7, "1.0E7"),
    (0.001, "0.001"),
    (1e-4, "1.0E-4"),
    (12345678.9, "1.23456789E7"),
    (-2.5e20, "-2.5E20"),
    (0.0, "0.0"),
]


@pytest.mark.parametrize(("kind", "text", "shown"), GOOD)
def test_what_kafka_reads(kind: Type, text: str, shown: str) -> None:
    assert to_text(parse("n", text, kind), kind) == shown


@pytest.mark.parametrize(("kind", "text", "said"), BAD, ids=lambda value: str(value)[:20])
def test_what_kafka_refuses_and_its_words(kind: Type, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse("n", text, kind)
    assert str(refusal.value) == said


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False))
def test_a_double_survives_being_written(value: float) -> None:
    assert parse("n", java_double(value), Type.DOUBLE) == value


@given(st.text(max_size=30), st.sampled_from(list(Type)))
def test_any_text_is_read_or_refused(text: str, kind: Type) -> None:
    try:
        to_text(parse("n", text, kind), kind)
    except ConfigError as refusal:
        assert refusal.name == "n"
