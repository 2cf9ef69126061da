"""The whole cluster in one process under a seeded virtual-time loop, with a disk and a network that fail.

The node's code is the real one; only `World` differs: `loop.py` is its time, `disk.py` its `Files`, `network.py` its
`Network`. The same seed gives the same run.
"""
