"""Worker: input pipelines; seconds per element, on the clock and of the processor.

Takes the system and a folder, where the first one makes the files.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IMAGES = 64
SIZE = 160
RECORDS = 2000
REPEATS = 5


def make_files(folder: Path) -> None:
    """Images of smooth colours with some noise, so that they compress like photographs; and lines of numbers."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    for i in range(IMAGES):
        waves = [np.sin(6 * (a * x + b * y) + i) for a, b in ((1, 2), (2, 1), (1, -1))]
        pixels = 127 + 90 * np.stack(waves, -1) + rng.normal(0, 4, (SIZE, SIZE, 3))
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        image.save(folder / f"{i}.png")
        image.save(folder / f"{i}.jpg", quality=90)
    lines = [",".join(f"{v:.4f}" for v in rng.normal(size=8)) for _ in range(RECORDS)]
    (folder / "numbers.csv").write_text("\n".join(lines) + "\n")


def write_records(tf: Any, path: Path) -> None:
    rng = np.random.default_rng(0)
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for _ in range(RECORDS):
            writer.write(rng.bytes(1000))


def pipelines(tf: Any, folder: Path) -> dict[str, tuple[Callable[[], Any], int, int]]:
    """By name: what makes the dataset, elements per batch, batches to time."""

    def numbers() -> Any:
        mapped = tf.data.Dataset.range(1 << 40).map(lambda x: x * 2 + 1)
        return mapped.shuffle(10_000, seed=1).batch(256).prefetch(2)

    def records() -> Any:
        source = tf.data.TFRecordDataset(str(folder / "data.tfrecord"))
        return source.repeat().map(lambda r: tf.decode_raw(r, tf.uint8)).batch(100).prefetch(2)

    def rows() -> Any:
        lines = tf.data.TextLineDataset(str(folder / "numbers.csv")).repeat()
        return lines.map(lambda line: tf.stack(tf.decode_csv(line, [[0.0]] * 8))).batch(100).prefetch(2)

    def images(kind: str, decode: Any) -> Callable[[], Any]:
        def decoded(name: Any) -> Any:
            pixels = decode(tf.read_file(name), channels=3)
            pixels.set_shape([SIZE, SIZE, 3])
            return tf.cast(pixels, tf.float32) / 255.0

        def make() -> Any:
            names = tf.data.Dataset.from_tensor_slices([str(folder / f"{i}.{kind}") for i in range(IMAGES)])
            return names.repeat().shuffle(IMAGES, seed=1).map(decoded, num_parallel_calls=2).batch(32).prefetch(2)

        return make

    return {
        "range, map, shuffle, batch, prefetch": (numbers, 256, 40),
        "records of 1 kB from a TFRecord file": (records, 100, 20),
        "rows of 8 numbers from a CSV file": (rows, 100, 20),
        f"PNG {SIZE} x {SIZE}, decoded and batched": (images("png", tf.image.decode_png), 32, 4),
        f"JPEG {SIZE} x {SIZE}, decoded and batched": (images("jpg", tf.image.decode_jpeg), 32, 4),
    }


def seconds_per_element(tf: Any, make: Callable[[], Any], size: int, batches: int) -> tuple[float, float]:
    """On the clock, the median of some rounds, and of the processor, the least, which other work disturbs least."""
    with tf.Graph().as_default(), tf.Session() as session:
        following = tf.data.make_one_shot_iterator(make()).get_next()
        for _ in range(3):
            session.run(following)
        times, processor = [], []
        for _ in range(REPEATS):
            start, used = time.perf_counter(), time.process_time()
            for _ in range(batches):
                session.run(following)
            times.append((time.perf_counter() - start) / (batches * size))
            processor.append((time.process_time() - used) / (batches * size))
    return statistics.median(times), min(processor)


def main(tf: Any, folder: Path) -> dict[str, float]:
    if not (folder / "data.tfrecord").exists():
        make_files(folder)
        write_records(tf, folder / "data.tfrecord")
    seconds: dict[str, float] = {}
    for name, made in pipelines(tf, folder).items():
        seconds[name], seconds[f"{name}: processor"] = seconds_per_element(tf, *made)
    return seconds


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf, Path(sys.argv[2]))))
