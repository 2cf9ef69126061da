"""Runs the log cleaner in this process, step by step, as `broker.log_cleaner` does it in a separate process."""

from __future__ import annotations

from collections.abc import Generator

from ottla.protocol.work import DiskJob
from ottla.storage.cleaner.cleaner import Advance, Begin, Step
from ottla.storage.cleaner.cleaner_pass import CleaningPass, PassProgress
from ottla.storage.files import Files


def steps_done(steps: Generator[Step, PassProgress | None, object], files: Files) -> Generator[Step, None, object]:
    """Do each step and yield it afterwards. An exception in a step is thrown into the cleaner, as a driver must do."""
    work: CleaningPass | None = None
    answer: PassProgress | None = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                step = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end.value
            answer = failure = None
            try:
                match step:
                    case Begin(job):
                        work = CleaningPass(files, job)
                    case Advance(first_base):
                        assert work is not None
                        answer = work.advance(first_base)
                    case DiskJob(_, function):
                        function()
            except BaseException as error:
                failure = error
            else:
                yield step
    finally:
        steps.close()
