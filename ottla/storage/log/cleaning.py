"""What the log cleaner knows of a log. The log has it, because it moves and is truncated with the log."""

from __future__ import annotations


class Cleaning:
    """What the log cleaner knows of a log: up to where it is clean, and why it is skipped (storage/cleaner)."""

    def __init__(self) -> None:
        self.cleaned_until = 0  # all below is clean (cleaner-offset-checkpoint)
        self.uncleanable: str | None = None  # why the log cleaner skips it
        # True while a future log copies this one. It is not compacted then: the copy could keep a record whose tombstone is gone.
        self.is_moving = False

    def cleaned(self, until: int) -> None:
        """All below `until` is clean: a pass has ended, or the checkpoint says so at the start."""
        self.cleaned_until = until

    def truncated(self, offset: int) -> None:
        """Records that are appended in the place of truncated ones were never cleaned."""
        self.cleaned_until = min(self.cleaned_until, offset)

    def skip(self, reason: str) -> None:
        self.uncleanable = reason

    def begin_move(self) -> None:
        self.is_moving = True

    def end_move(self) -> None:
        self.is_moving = False

    def take_over(self, replaced: Cleaning) -> None:
        """Takes the place of another log with the same records."""
        self.cleaned_until, self.uncleanable = replaced.cleaned_until, replaced.uncleanable
        self.is_moving = False
