"""Combined batches, against a model that looks at each offset by itself."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.share.coordinator.share_shard import combine
from ottla.broker.share.share_state import StateBatch

OFFSETS = 24


def by_offset(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Return the model: for each offset the highest (delivery count, delivery state) of any batch."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (batch.delivery_count, batch.delivery_state))
    return found


def runs(found: dict[int, tuple[int, int]]) -> list[StateBatch]:
    result: list[StateBatch] = []
    for offset in sorted(found):
        count, state = found[offset]
        if result and result[-1].last_offset + 1 == offset and result[-1][2:] == (state, count):
            result[-1] = result[-1]._replace(last_offset=offset)
        else:
            result.append(StateBatch(offset, offset, state, count))
    return result


def random_batches(rng: Random) -> list[StateBatch]:
    batches = []
    for _ in range(rng.randrange(5)):
        first = rng.randrange(OFFSETS)
        batches.append(StateBatch(first, rng.randrange(first, OFFSETS), rng.choice((0, 2, 4)), rng.randrange(1, 4)))
    return batches


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_of_updates_give_what_each_offset_by_itself_gives(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        state: tuple[StateBatch, ...] = ()
        seen: list[StateBatch] = []
        start_offset = -1
        for _ in range(rng.randrange(1, 8)):
            new = random_batches(rng)
            start_offset = rng.choice((start_offset, start_offset, rng.randrange(max(start_offset, 0), OFFSETS)))
            seen = [*seen, *new]
            state = combine(state, new, start_offset)
            model = by_offset(seen, start_offset)
            assert list(state) == runs(model), f"seed {seed}: {seen} from {start_offset}"


def test_the_start_offset_cuts_a_batch_and_drops_what_is_before_it() -> None:
    state = combine((), [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1)], -1)
    assert combine(state, [], 7) == (StateBatch(7, 9, 0, 1),)


def test_a_later_delivery_replaces_the_part_of_a_batch_that_it_covers() -> None:
    state = combine((), [StateBatch(0, 9, 0, 1)], -1)
    assert combine(state, [StateBatch(3, 5, 2, 2)], -1) == (
        StateBatch(0, 2, 0, 1),
        StateBatch(3, 5, 2, 2),
        StateBatch(6, 9, 0, 1),
    )


def test_an_update_that_arrives_late_does_not_lower_a_delivery_count() -> None:
    state = combine((), [StateBatch(0, 9, 0, 3)], -1)
    assert combine(state, [StateBatch(2, 4, 4, 2)], -1) == state
