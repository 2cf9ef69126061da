"""Durations of share.auto.offset.reset=by_duration:..."""

from __future__ import annotations

import pytest

from ottla.broker.share.group_settings import duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P2D", 172_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.25s", 250),
        ("PT90M", 5_400_000),
        ("PT.", None),
    ],
)
def test_a_duration_is_read(text: str, milliseconds: int | None) -> None:
    if milliseconds is None:
        with pytest.raises(AssertionError):
            duration_ms(text)
    else:
        assert duration_ms(text) == milliseconds
