"""Makes the object that works on topics' tables, in the process beside the node.

A broker knows nothing of tables' libraries, and must not: they cost 1.7 s of processor and 130 MB. The node, which puts everything together, hands it
this function, whose name goes through the pipe. The import is in the function, so that it happens in that process alone.
"""

from __future__ import annotations


def table_worker() -> object:
    from ottla.tables.worker import TableWorker

    return TableWorker()
