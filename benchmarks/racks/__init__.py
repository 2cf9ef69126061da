"""Many brokers in three racks on one machine: their behaviour when a rack is cut off, when all are restarted, and when one is
lost.
"""
