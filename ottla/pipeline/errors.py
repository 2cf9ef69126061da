"""The one error that a user of the pipeline sees: the cause, the place, and the remedy."""

from __future__ import annotations


class PipelineError(Exception):
    """A mistake or a missing part outside this package. Its text is one line for users."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
