"""Why directories are not adopted. It is raised before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence


class CannotAdopt(Exception):
    """`reasons` are whole sentences with what to do; all that were found at one stage of the check."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
