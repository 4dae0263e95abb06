"""Placement: which device runs each operation of a step, and the Send and Recv operations between them (§3.3, WP3.2).

Nothing here knows JAX: devices are asked through `core.devices.Device`.
"""
