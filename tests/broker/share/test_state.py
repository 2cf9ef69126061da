"""The key by which the coordinator of a share partition is found."""

from __future__ import annotations

import pytest

from ottla.broker.share.share_state import SharePartitionKey, parse_coordinator_key

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("group_id", ["g", "a:b", " g"])
def test_a_key_is_read_as_it_was_written(group_id: str) -> None:
    key = SharePartitionKey(group_id, b"\0" * 15 + b"\1", 7)
    assert key.coordinator_key == f"{group_id}:{TOPIC}:7"
    assert parse_coordinator_key(key.coordinator_key) == key


@pytest.mark.parametrize("text", ["", "g", "a:b", f":{TOPIC}:0", "g:short:0", f"g:{TOPIC}:", f"g:{TOPIC}:x"])
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_coordinator_key(text)
