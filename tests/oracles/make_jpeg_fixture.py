"""Writes `tests/fixtures/tensorflow/jpeg.npz`: JPEG images, and what TensorFlow makes of them.

    python tests/oracles/make_jpeg_fixture.py        (in an environment that has TensorFlow: `make bench-env`)

Each image `KIND` is there as bytes, and decoded as `KIND/CHANNELS/RATIO/UPSCALING/DCT`.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

FIXTURE = Path(__file__).parent.parent / "fixtures" / "tensorflow" / "jpeg.npz"
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "colour": (3, {}),
    "full": (3, {"subsampling": 0}),
    "progressive": (3, {"progressive": True}),
    "grey": (1, {}),
}
OPTIONS = itertools.product((0, 1, 3), (1, 2), (True, False), ("", "INTEGER_ACCURATE"))


def main() -> None:
    """Makes the file."""
    rng, found = np.random.default_rng(0), {}
    options = list(OPTIONS)
    for kind, (channels, how) in KINDS.items():
        blocks = rng.integers(0, 256, (7, 5, channels), np.uint8).repeat(3, 0).repeat(4, 1)
        out = io.BytesIO()
        Image.fromarray(blocks.squeeze()).save(out, "JPEG", quality=80, **how)
        found[kind] = np.frombuffer(out.getvalue(), np.uint8)
        for channels, ratio, fancy, dct in options:
            pixels = tf.io.decode_jpeg(out.getvalue(), channels, ratio=ratio, fancy_upscaling=fancy, dct_method=dct)
            found[f"{kind}/{channels}/{ratio}/{fancy}/{dct}"] = pixels.numpy()
    FIXTURE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FIXTURE, **found)


if __name__ == "__main__":
    main()
