"""Log start offsets made durable, with the slow steps apart: what DeleteRecords removed must not come back, and the event loop does not wait for it.

    LogStarts(...)   collects the offsets of a directory's logs             where the logs change
    write            writes and syncs a file beside the checkpoint          anywhere
    replace          puts it in the checkpoint's place                      where the logs change
    settle           syncs the directory: from here on it is durable        anywhere

Other writers of the checkpoint (truncations, deletions of topics) may come between the steps. Theirs know less of log starts, and
these offsets less of theirs: then `replace` gives False, and the caller begins anew.
"""

from __future__ import annotations

from storage import checkpoint
from storage.log_dirs import LogDir
from storage.logs import Logs


class LogStarts:
    """One write of one directory's checkpoint."""

    def __init__(self, logs: Logs, directory: LogDir) -> None:
        self._logs = logs
        self._directory = directory
        self._path = f"{directory.path}/{checkpoint.LOG_START}"
        self._known = logs.checkpointed(self._path)
        self._offsets = logs.log_starts(directory)

    def write(self) -> None:
        checkpoint.write_offsets(self._logs.files, self._beside, self._offsets)

    def replace(self) -> bool:
        if self._logs.checkpointed(self._path) is not self._known:
            return False
        self._logs.files.rename(self._beside, self._path)
        self._logs.checkpoint_replaced(self._path, self._offsets)
        return True

    def settle(self) -> None:
        self._logs.files.sync_dir(self._directory.path)

    @property
    def _beside(self) -> str:
        return self._path + ".next"
