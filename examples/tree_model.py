"""Trains a recursive network on trees: every example has a structure of its own, and one program runs them all.

Formulas such as `not (true and (false or true))` are trees. A node's vector is computed from those of its children,
with the weights of its kind; a classifier tells from the root's vector whether the formula is true. A tree is data:
for each node, children first, its kind and the numbers of its children. A `tf.while_loop` goes over the nodes and
keeps their vectors in a `tf.TensorArray`; `tf.gradients` goes the same way back, so that gradients follow each tree's
structure.

Run it with `python examples/tree_model.py [--steps 1500]`.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np

import anabranch as tf

FALSE, TRUE, NOT, AND, OR = range(5)
CAPACITY, UNITS = 64, 24

#: (kind, left child, right child) of each node, children first; nodes are numbered from 1, and 0 means no child
Tree = list[tuple[int, int, int]]


def random_tree(rng: random.Random, depth: int, nodes: Tree) -> tuple[int, bool]:
    """Appends a random formula to `nodes`; returns the number of its root and whether it is true."""
    kind = rng.choice((NOT, AND, OR)) if depth else rng.choice((FALSE, TRUE))
    left = right = 0
    truth = kind == TRUE
    if kind >= NOT:
        left, truth = random_tree(rng, rng.randrange(depth), nodes)
    if kind >= AND:
        right, other = random_tree(rng, rng.randrange(depth), nodes)
        truth = (truth and other) if kind == AND else (truth or other)
    nodes.append((kind, left, right))
    return len(nodes), truth ^ (kind == NOT)


def example(rng: random.Random, depth: int) -> tuple[np.ndarray[Any, Any], int, bool]:
    """A tree as an array [CAPACITY, 3], the number of its nodes, and whether it is true."""
    nodes: Tree = []
    _, truth = random_tree(rng, depth, nodes)
    rows = np.zeros((CAPACITY, 3), np.int32)
    rows[: len(nodes)] = nodes
    return rows, len(nodes), truth


class TreeNetwork:
    """The graph: `logit` follows from `tree` and `count`; `train` runs one step of training towards `truth`."""

    def __init__(self) -> None:
        self.tree = tf.placeholder(tf.int32, [CAPACITY, 3], name="tree")
        self.count = tf.placeholder(tf.int32, [], name="count")
        self.truth = tf.placeholder(tf.float32, [], name="truth")
        root = self._vectors().read(self.count)
        self.logit = tf.layers.dense(root[tf.newaxis], 1)[0, 0]
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=self.truth, logits=self.logit)
        self.train = tf.train.AdamOptimizer(3e-3).minimize(loss)

    def _vectors(self) -> Any:
        """The vectors of all nodes; element 0 stands for missing children."""
        kernels = tf.get_variable("kernels", [5, 2 * UNITS, UNITS], initializer=tf.random_normal_initializer(0, 0.3))
        biases = tf.get_variable("biases", [5, UNITS], initializer=tf.random_normal_initializer(0, 0.3))
        array = tf.TensorArray(tf.float32, CAPACITY + 1, element_shape=[UNITS], clear_after_read=False)
        array = array.write(0, tf.zeros([UNITS]))

        def compute(number: Any, array: Any) -> Any:
            kind, left, right = tf.unstack(self.tree[number - 1])
            children = tf.concat([array.read(left), array.read(right)], 0)
            vector = tf.tanh(tf.matmul(children[tf.newaxis], tf.gather(kernels, kind))[0] + tf.gather(biases, kind))
            return number + 1, array.write(number, vector)

        _, array = tf.while_loop(lambda number, _: number <= self.count, compute, (1, array))
        return array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    steps = parser.parse_args().steps
    rng = random.Random(1)
    tf.set_random_seed(2)
    network = TreeNetwork()
    shapes = set()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = session.make_callable(network.train, [network.tree, network.count, network.truth])
        for _ in range(steps):
            rows, count, truth = example(rng, depth=4)
            shapes.add(rows.tobytes())
            step(rows, np.int32(count), np.float32(truth))
        classify = session.make_callable(network.logit, [network.tree, network.count])
        for depth in (2, 4, 6):
            trees = [example(rng, depth) for _ in range(300)]
            right = np.mean([(classify(rows, np.int32(count)) > 0) == truth for rows, count, truth in trees])
            print(f"trees of depth {depth} at most: {100 * right:.1f}% right")
    print(f"trained on {len(shapes)} different trees")


if __name__ == "__main__":
    main()
