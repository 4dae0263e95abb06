"""A graph between a small device and a server, cut where it costs least, as in MAUI (Cuervo et al., 2010).

Each layer of a network for images runs on the device, or on the server, which is faster; what passes from one to the
other goes over the link. Sending everything is best where the link is fast, and nothing where it is slow; in between,
the device computes until the activations are small. The least total time of a step is a minimum cut: an edge to each
side costs what the layer takes on the other one, and an edge between layers costs the transfer.

What layers take is measured on this machine; how much slower the device is, is said (`--slower`). For each speed the
network is then run as it was cut, as two tasks, and gives what one process gives.

    python examples/systems/minimum_cut.py [--draw minimum_cut.svg]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import local_cluster
from anabranch.tools.demo.curves import draw_curves

DEVICE, SERVER = "/job:device/task:0", "/job:server/task:0"
SIDE = 96
#: bytes per second
LINKS = (3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 1e9)
LAYERS = ("shrink", "edges", "pool_1", "shapes", "pool_2", "dense", "classes")


# ---------------------------------------------------------------------- the least cut
def minimum_cut(capacity: dict[tuple[str, str], float], source: str, sink: str) -> tuple[float, set[str]]:
    """The cut of least capacity: by augmenting the shortest paths (Edmonds and Karp).

    Returns:
        Its capacity, and the nodes on the side of `source`.
    """
    left: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (a, b), most in capacity.items():
        left[a][b] += most
        left[b][a] += 0.0
    flow = 0.0
    while True:
        previous: dict[str, str] = {source: source}
        waiting = deque([source])
        while waiting and sink not in previous:
            a = waiting.popleft()
            for b, most in left[a].items():
                if most > 1e-12 and b not in previous:
                    previous[b] = a
                    waiting.append(b)
        if sink not in previous:
            return flow, set(previous)
        path = [sink]
        while path[-1] != source:
            path.append(previous[path[-1]])
        edges = list(zip(path[1:], path[:-1], strict=True))
        more = min(left[a][b] for a, b in edges)
        for a, b in edges:
            left[a][b] -= more
            left[b][a] += more
        flow += more


def capacities(seconds: dict[str, float], sizes: dict[str, int], slower: float, link: float) -> Any:
    """The edges: `device` and `server` are the two sides; the image is at the device, where the answer is wanted."""
    edges: dict[tuple[str, str], float] = defaultdict(float)
    chain = ["device", *LAYERS]
    for layer in LAYERS:
        edges["device", layer] += seconds[layer]  # cut if the server computes it
        edges[layer, "server"] += seconds[layer] * slower
    for a, b in itertools.pairwise(chain):
        edges[a, b] += sizes[a] / link
        edges[b, a] += sizes[a] / link
    edges["device", LAYERS[-1]] += sizes[LAYERS[-1]] / link
    return dict(edges)


# ---------------------------------------------------------------------- the network
def network(image: Any, places: dict[str, str]) -> dict[str, Any]:
    """The outputs of all layers, each computed where `places` says."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return tf.constant(rng.normal(0, 0.2, shape).astype(np.float32))

    layers = {
        "shrink": lambda x: tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        "edges": lambda x: tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, 3, 16), [1, 1, 1, 1], "SAME")),
        "pool_1": lambda x: tf.nn.max_pool(x, [1, 4, 4, 1], [1, 4, 4, 1], "SAME"),
        "shapes": lambda x: tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, 16, 32), [1, 1, 1, 1], "SAME")),
        "pool_2": lambda x: tf.nn.max_pool(x, [1, 4, 4, 1], [1, 4, 4, 1], "SAME"),
        "dense": lambda x: tf.nn.relu(tf.matmul(tf.reshape(x, [1, -1]), weights(9 * 32, 256))),
        "classes": lambda x: tf.matmul(x, weights(256, 10)),
    }
    outputs = {}
    for name in LAYERS:
        with tf.device(places.get(name)):
            outputs[name] = image = layers[name](image)
    return outputs


def measured(picture: Any) -> tuple[dict[str, float], dict[str, int], Any]:
    """What each layer takes (s), the bytes that it gives, and the answer."""
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.float32, picture.shape)
        outputs = network(image, {})
        values = dict(zip(LAYERS, session.run([outputs[name] for name in LAYERS], {image: picture}), strict=True))
        seconds = {}
        for before, name in itertools.pairwise(["", *LAYERS]):
            feeds = {outputs[before]: values[before]} if before else {image: picture}
            session.run(outputs[name], feeds)
            times = []
            for _ in range(15):
                begin = time.perf_counter()
                session.run(outputs[name], feeds)
                times.append(time.perf_counter() - begin)
            seconds[name] = min(times)
    sizes = {"device": picture.nbytes, **{name: values[name].nbytes for name in LAYERS}}
    return seconds, sizes, values[LAYERS[-1]]


def run_cut(picture: Any, on_device: set[str]) -> Any:
    """The answer of the network as it was cut, from two tasks."""
    places = {name: DEVICE if name in on_device else SERVER for name in LAYERS}
    with local_cluster(device=1, server=1) as cluster, tf.Graph().as_default():
        with tf.device(DEVICE):
            image = tf.placeholder(tf.float32, picture.shape)
        answer = network(image, places)[LAYERS[-1]]
        with tf.Session(cluster.target("device", 0)) as session:
            return session.run(answer, {image: picture})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Cuts a network between a device and a server.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    parser.add_argument("--slower", type=float, default=20.0, help="how much slower the device is")
    chosen = parser.parse_args(arguments)
    picture = np.random.default_rng(1).random((1, SIDE, SIDE, 3), np.float32)
    seconds, sizes, answer = measured(picture)
    for name in LAYERS:
        print(f"{name:8} {1e6 * seconds[name]:7.0f} us on the server, gives {sizes[name]:6} bytes")
    curves: dict[str, list[tuple[float, float]]] = {
        "the least cut": [],
        "all on the device": [],
        "all on the server": [],
    }
    cuts = []
    for link in LINKS:
        least, side = minimum_cut(capacities(seconds, sizes, chosen.slower, link), "device", "server")
        on_device = side & set(LAYERS)
        local = chosen.slower * sum(seconds.values())
        remote = sum(seconds.values()) + (sizes["device"] + sizes[LAYERS[-1]]) / link
        for label, value in zip(curves, (least, local, remote), strict=True):
            curves[label].append((link, value))
        where = ", ".join(name for name in LAYERS if name in on_device) or "nothing"
        print(
            f"{link:8.0e} bytes/s: {1e3 * least:8.2f} ms (device {1e3 * local:.2f}, server {1e3 * remote:.2f}); {where}"
        )
        if on_device not in cuts:
            cuts.append(on_device)
    off = max(float(np.abs(run_cut(picture, cut) - answer).max()) for cut in cuts)
    print(f"{len(cuts)} different cuts; largest difference to one process: {off:.2g}")
    if chosen.draw:
        draw_curves(chosen.draw, curves, "a network between two", "seconds", "bytes/s of the link", logarithmic=True)


if __name__ == "__main__":
    main()
