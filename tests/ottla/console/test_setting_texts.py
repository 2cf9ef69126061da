"""Settings in units that people read and type."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from ottla.client.failures import Failure
from ottla.console.setting_texts import SETTINGS_MAX, common, human, raw, read_lines, sentence, setting_rows, span


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("retention.ms", "-1", "no limit"),
        ("segment.ms", "5400000", "1 hour 30 minutes"),
        ("file.delete.delay.ms", "60000", "1 minute"),
        ("max.compaction.lag.ms", "9223372036854775807", "no limit"),
        ("flush.messages", "9223372036854775807", "no limit"),
        ("segment.jitter.ms", "0", None),
        ("segment.bytes", "1073741824", "1 GB"),
        ("max.message.bytes", "1048588", "1 MB"),
        ("index.interval.bytes", "4096", "4 KB"),
        ("local.retention.ms", "-2", "as retention"),
        ("min.insync.replicas", "2000000", None),
        ("retention.ms", "soon", None),
        ("retention.ms", None, None),
        ("retention.ms", "9" * 30, None),
    ],
)
def test_a_value_is_shown_in_the_unit_of_its_name(name: str, value: str | None, shown: str | None) -> None:
    assert human(name, value) == shown


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "7 days", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "604800000", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("retention.bytes", "10 GB", str(10 << 30)),
        ("segment.bytes", "512kib", str(512 << 10)),
        ("segment.bytes", "7 bytes", "7"),
        ("cleanup.policy", "7 days", "7 days"),
        ("retention.ms", "soon", "soon"),
    ],
)
def test_a_text_with_a_unit_is_the_number_that_a_broker_takes(name: str, text: str, value: str) -> None:
    assert raw(name, text) == value


def test_what_is_shown_may_be_typed() -> None:
    for ms in (1_000, 60_000, 3_600_000, 86_400_000, 604_800_000):
        assert raw("retention.ms", span(ms)) == str(ms)


def test_a_unit_of_another_kind_is_refused_with_an_example() -> None:
    with pytest.raises(Failure, match="is not given in 'days'"):
        raw("retention.bytes", "7 days")
    with pytest.raises(Failure, match="no whole number of ms"):
        raw("retention.ms", "0.0001 s")
    with pytest.raises(Failure, match="is not NAME=VALUE"):
        read_lines("a=b\nc")
    with pytest.raises(Failure, match=f"more than {SETTINGS_MAX}"):
        read_lines("\n".join(f"k{number}=1" for number in range(SETTINGS_MAX + 1)))
    assert read_lines("segment.ms = 1 day\n\ncleanup.policy=compact") == {
        "segment.ms": "86400000",
        "cleanup.policy": "compact",
    }


def test_the_first_sentence_of_a_text_is_shown_without_its_markup() -> None:
    assert (
        sentence("How long <code>x.y</code> is kept, e.g. a day. More.\nMuch more.")
        == "How long x.y is kept, e.g. a day."
    )
    assert sentence("") == "" and len(sentence("word " * 1_000)) < 230
    began_s = time.monotonic()
    for text in ("<" * 100_000, "." * 100_000, "a. " * 100_000):
        sentence(text)
    assert time.monotonic() - began_s < 1
    assert all(text for _, text in common())


def test_a_row_has_the_value_that_would_be_without_it_and_hides_what_is_sensitive() -> None:
    below = SimpleNamespace(source=4, value="86400000")
    entry = SimpleNamespace(
        name="retention.ms",
        value="3600000",
        is_sensitive=False,
        config_source=1,
        read_only=False,
        documentation="How long. And so on.",
        synonyms=[SimpleNamespace(source=1, value="3600000"), below],
    )
    secret = SimpleNamespace(**vars(entry) | {"name": "remote.x", "is_sensitive": True, "config_source": 5})
    rows = setting_rows([entry, secret])
    assert (rows[0].human, rows[0].is_own, rows[0].sentence) == ("1 hour", True, "How long.")
    assert rows[0].below == [("server.properties", "86400000", "1 day")]
    assert rows[1].value == "(hidden)" and rows[1].is_tiered and rows[1].is_default
