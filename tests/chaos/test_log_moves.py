"""Kill -9 while replicas move between log directories; `make chaos` has more cycles."""

import pytest

from tests.chaos import log_moves
from tests.effort import seeds

CYCLES = seeds(3, long=200)


@pytest.mark.chaos
@pytest.mark.timeout(180 + 10 * CYCLES)
def test_a_node_killed_while_its_replicas_move_loses_and_doubles_nothing_and_the_moves_end() -> None:
    verdict, moved = log_moves.run(CYCLES, seed=1)
    assert verdict.problems == []
    assert moved >= CYCLES // 2, "most kills came before a move had ended"
