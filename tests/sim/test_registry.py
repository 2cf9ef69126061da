"""The registry in virtual time: histories with faults, and mistakes that they must notice."""

from __future__ import annotations

import pytest

from tests.sim.registry_history import play

SEEDS = range(10)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_id_means_one_schema_and_what_was_answered_is_found_by_every_instance(seed: int) -> None:
    play(seed)
