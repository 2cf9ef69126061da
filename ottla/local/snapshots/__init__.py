"""Snapshots of a cluster whose nodes run on this machine, and what is made from them: forks, and the restored cluster.

A snapshot has what a `kill -9` of all nodes at one moment would have left in their directories, and nothing else: the operating
system stops all nodes for some milliseconds, while their files are linked and copied. So it is as consistent as a cluster that
starts after such a crash. The effect on records, transactions and groups is that of a crash, and needs no proof of its own:
docs/SNAPSHOTS.md.

    layout.py    the paths of snapshots, and the description of each
    fence.py     the nodes' processes, and the moment in which all of them are stopped
    copying.py   what is linked, what is copied, and how much of it before that moment
    sealing.py   recovery of the copies, so that every fork starts as after an orderly stop, and shares all files
    taking.py    `ottla snapshot create`: these steps in their order
    placing.py   the other way: a directory of a cluster from a snapshot (`ottla snapshot restore`, `ottla fork`)
"""
