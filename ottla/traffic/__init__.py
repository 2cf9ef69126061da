"""Traffic between clients and a cluster: recorded, shown, sent again, compared with another cluster's answers. See docs/TRAFFIC.md."""
