"""What resource handles stand for, as pure state machines: queues, barriers, accumulators, tables, readers, iterators.

They know neither graphs nor threads: a request that cannot be served yet is kept as a `core.pending.Pending`, which a
later request settles.
"""
