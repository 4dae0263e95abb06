"""What libraries ask of `tensorflow.python.ops.distributions.util`: a seed from a seed."""

from __future__ import annotations

import hashlib


def gen_new_seed(seed: int | None, salt: str) -> int | None:
    """A seed in [0, 2^31) that another seed and a text say; None without a seed."""
    if seed is None:
        return None
    digest = hashlib.md5(f"{seed}{salt}".encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16) & 0x7FFFFFFF
