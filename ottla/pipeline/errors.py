"""The one error a user of the pipeline sees: what went wrong, where, and what to do about it."""

from __future__ import annotations


class PipelineError(Exception):
    """A mistake or a missing part outside this package; its text is one line for people."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
