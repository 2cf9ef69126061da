"""Work in turns of the event loop: what takes long is a generator (`protocol.work`), and goes on in the next turn where it yields.

    run_in_turns     awaited, with a budget of time for each turn; it also does what the work asks for, on workers
    begin_in_turns   without a task: the first slice at once, so that short work is done when the call returns

Some things go on in the next turn by themselves, because they are no work of one owner with an end:

    network/turn.py, coordinator/turns.py     a budget that many owners share, and the queue of those that wait for it
    wakeups.py, state_persister.py (broker)   gather what one turn asks for, and do it together in the next
    replication/fetcher.py                    a response that fits into one turn, as most do, needs no generator
    network/tls_stream.py, and calls of a single function that must not run inside their caller

Nothing else runs between two slices of one turn. Between two turns everything may: the state that the work reads can change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from ottla.protocol.work import Work
from ottla.server.clock import Clock, pause

T = TypeVar("T")


async def run_in_turns(
    clock: Clock,
    work: Generator[Any, Any, T],
    budget_ns: int = 0,
    do: Callable[[Any], Awaitable[object]] | None = None,
) -> T:
    """Runs the work and returns its result. Without a budget each slice is a turn of its own: the work counts for itself.

    `do` does what the work yields, and its result is sent back; a failure of it is thrown into the work, which decides whether
    it ends by it.
    """
    turn_ends_ns = clock.mono_ns() + budget_ns
    answer: object = None
    failure: Exception | None = None
    while True:
        try:
            asked = work.send(answer) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = failure = None
        if asked is not None:
            assert do is not None, f"nothing does {asked}"
            try:
                answer = await do(asked)
            except Exception as error:
                failure = error
        elif clock.mono_ns() >= turn_ends_ns:
            await pause(clock, 0)
            turn_ends_ns = clock.mono_ns() + budget_ns


def begin_in_turns(
    clock: Clock,
    work: Work[T],
    done: Callable[[T], object] | None = None,
    failed: Callable[[Exception], object] | None = None,
) -> None:
    """Runs the first slice, and each other one in a turn of its own; `done` gets the result in the turn of the last.

    An error of the first slice is raised here. `failed` gets that of a later one; without it the event loop logs the error.
    """

    def next_turn() -> None:
        try:
            ended = _advance(work)
        except Exception as error:
            if failed is None:
                raise
            failed(error)
        else:
            go_on(ended)

    def go_on(ended: StopIteration | None) -> None:
        if ended is None:
            clock.call_later(0, next_turn)
        elif done is not None:
            done(ended.value)

    go_on(_advance(work))


def _advance(work: Work[T]) -> StopIteration | None:
    """Runs one slice. Returns the end of the work, with its result, or None if there is more."""
    try:
        next(work)
    except StopIteration as end:
        return end
    return None
