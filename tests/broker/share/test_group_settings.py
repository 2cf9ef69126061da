"""The settings of groups as leaders of share partitions keep them, and durations of share.auto.offset.reset=by_duration:..."""

from __future__ import annotations

import pytest

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.share.group_settings import KEPT_BYTES_MAX, GroupSettingsView, duration_ms
from ottla.server.config.node_config import NodeConfig
from tests.broker.share.test_transcripts import NODE


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


def test_settings_of_groups_that_clients_make_up_are_kept_up_to_a_bound() -> None:
    view = GroupSettingsView(BrokerConfigs(NodeConfig(NODE)), MetadataCache(1, "cluster"))
    names = [f"{number:0250d}" for number in range(KEPT_BYTES_MAX // 500)]
    for name in names:
        assert view.of(name) == view.of(names[0])
    assert view.kept.bytes <= KEPT_BYTES_MAX and names[0] in view.kept and len(view.kept) < len(names)
