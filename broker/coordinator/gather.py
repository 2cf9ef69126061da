"""Several answers, some of them Pending, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.broker.coordinator.outcome import Pending


def gather(answers: Sequence[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """`combine(answers)`, or a Pending of it when one of them is not there yet."""
    collected = list(answers)
    waiting = [index for index, answer in enumerate(collected) if type(answer) is Pending]
    if not waiting:
        return combine(collected)
    # Each part turns its own errors into answers, so the whole cannot fail.
    whole = Pending(lambda error: error)
    left = len(waiting)

    def arrived(index: int, answer: Any) -> None:
        nonlocal left
        collected[index] = answer
        left -= 1
        if not left:
            whole.complete(combine(collected))

    for index in waiting:
        collected[index].when_done(partial(arrived, index))
    return whole


def then(answer: Any, shape: Callable[[Any], Any]) -> Any:
    """`shape(answer)`, later when the answer is Pending."""
    if type(answer) is not Pending:
        return shape(answer)
    shaped = Pending(lambda error: error)
    answer.when_done(lambda value: shaped.complete(shape(value)))
    return shaped
