"""The size of a topic's segments, under its two names."""

from __future__ import annotations

import pytest

from ottla.storage.log_config import LogConfig


@pytest.mark.parametrize(
    "names", [("internal.segment.bytes", "segment.bytes"), ("segment.bytes", "internal.segment.bytes")]
)
def test_the_internal_size_of_a_segment_goes_before_the_public_one_whose_default_is_always_there(
    names: tuple[str, str],
) -> None:
    """The simulator sets it; with the default it never rolled a segment of a client's topic."""
    sizes = {"internal.segment.bytes": 2048, "segment.bytes": 1 << 30}
    assert LogConfig.from_topic_configs({name: sizes[name] for name in names}).segment_bytes == 2048
    assert (
        LogConfig.from_topic_configs({"segment.bytes": 1 << 20, "internal.segment.bytes": None}).segment_bytes
        == 1 << 20
    )
