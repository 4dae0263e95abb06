"""A private function of `tensorflow.python.util.nest` that libraries call."""

from __future__ import annotations


def _is_namedtuple(instance: object, strict: bool = False) -> bool:
    """Whether a value is a named tuple.

    Args:
        strict: whether its class must be one itself, and not only derive from one.
    """
    if not isinstance(instance, tuple):
        return False
    fields = getattr(instance, "_fields", None)
    if not isinstance(fields, tuple) or not all(isinstance(field, str) for field in fields):
        return False
    return not strict or type(instance).__base__ is tuple
