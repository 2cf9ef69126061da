"""Snapshots of a cluster whose nodes run on this machine, and what is made of them: forks, and the cluster as it was.

What a snapshot has is what a `kill -9` of all nodes at one moment would have left in their directories, and nothing else: the
nodes are stopped by the operating system for some milliseconds, all of them, while their files are linked and copied. So it is
as consistent as a cluster that comes up after such an end. What that means for records, transactions and groups follows from
what every node does after a crash, and needs no argument of its own: docs/SNAPSHOTS.md.

    layout.py    where snapshots lie, and what is written about each
    fence.py     the nodes' processes, and the moment in which all of them stand still
    copying.py   what is linked, what is copied, and how much of it before that moment
    sealing.py   recovery of the copies, so that every fork starts as after an orderly stop, and shares all files
    taking.py    `ottla snapshot create`: these, in their order
    placing.py   the other way: a directory of a cluster from a snapshot (`ottla snapshot restore`, `ottla fork`)
"""
