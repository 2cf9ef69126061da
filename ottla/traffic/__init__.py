"""Traffic between clients and a cluster can be recorded, shown, sent again, and compared with another cluster's responses
(docs/TRAFFIC.md).
"""
