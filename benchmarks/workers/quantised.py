"""Worker: the network of `examples/quantised_digits.py` on 359 digits, as floats and as bytes, in turns.

The least time and the least processor time of a step of each. The system ``anabranch`` trains and rewrites the network,
and leaves both graphs in the folder that is the second argument, where ``tensorflow`` finds them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("floats", "bytes")
WARM_UP, STEPS = 4, 40
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quantised_digits.py"


def write_graphs(folder: Path) -> None:
    """Trains the network, and writes both graphs and the digits."""
    import anabranch as tf
    from anabranch.tools.demo.digits import load_digits

    described = importlib.util.spec_from_file_location("quantised_digits", EXAMPLE)
    assert described is not None
    assert described.loader is not None
    example = importlib.util.module_from_spec(described)
    described.loader.exec_module(example)
    digits = load_digits()
    floats = example.trained(digits)
    samples = [{"images:0": digits.train_images[start : start + 64]} for start in range(0, 512, 64)]
    graphs = floats, tf.graph_util.quantize_graph(floats, ["logits"], samples)
    for kind, graph in zip(KINDS, graphs, strict=True):
        (folder / kind).write_bytes(graph.SerializeToString())
    np.save(folder / "digits.npy", digits.test_images)


def step_of(tf: Any, folder: Path, kind: str) -> Callable[[], object]:
    images = np.load(folder / "digits.npy")
    definition = tf.GraphDef.FromString((folder / kind).read_bytes())
    with tf.Graph().as_default() as graph:
        (logits,) = tf.import_graph_def(definition, return_elements=["logits:0"], name="")
        session = tf.Session(graph=graph)
    return lambda: session.run(logits, {"images:0": images})


def main(system: str, place: str) -> None:
    folder = Path(place)
    if system == "anabranch":
        import anabranch as tf

        if not (folder / KINDS[-1]).exists():
            write_graphs(folder)
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    steps = {kind: step_of(tf, folder, kind) for kind in KINDS}
    walls: dict[str, list[float]] = {kind: [] for kind in KINDS}
    busy: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(WARM_UP + STEPS):
        for kind, step in steps.items():
            start, used = time.perf_counter(), time.process_time()
            step()
            if turn >= WARM_UP:
                walls[kind].append(time.perf_counter() - start)
                busy[kind].append(time.process_time() - used)
    figures = {f"359 digits as {kind}": min(walls[kind]) for kind in KINDS}
    print(json.dumps(figures | {f"359 digits as {kind}, processor time": min(busy[kind]) for kind in KINDS}))


if __name__ == "__main__":
    main(*sys.argv[1:])
