"""Queues, staging areas, accumulators, lookup tables."""
