"""What cannot become columns: damaged or undecodable records, and schemas that have no types of columns."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode


class ColumnsError(Exception):
    """What happened and what to do. `code` is Kafka's error if there is one."""

    def __init__(self, what: str, remedy: str | None = None, code: int = ErrorCode.NONE) -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.code = code
