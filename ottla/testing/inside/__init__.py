"""The part of `ottla.testing` that runs inside a node's process: a node whose clock, disk and responses a test can spoil.

It is a separate program. `ottla start` imports nothing of it, and nothing of it listens: the faults come by a socket pair that
the test's process has made and that only its children inherit. So no property, variable, file or port turns a production node
into one of these, and a production node's paths have no branch for them (docs/SECURITY.md).

nursery      a process that has imported the server once, and forks a node in a tenth of the time of a start
faults       the faults of a node, as data
control      reads the faults from the socket pair, and hands them to the three below
clock        the session clock, which can be advanced
disk         files of a disk that is full or slow
requests     handlers that fail, wait, or hide versions
"""
