"""Worker: builds Inception-v3 with its gradients and an optimizer (Szegedy et al. 2015), as a graph program does."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


class Inception:
    """The network of 'Rethinking the Inception architecture', with batch normalisation after every convolution."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf

    def conv(self, x: Any, filters: int, kernel: Any, strides: int = 1, padding: str = "SAME") -> Any:
        tf = self.tf
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        with tf.variable_scope(None, "conv"):
            weights = tf.get_variable("weights", [height, width, int(x.shape[-1]), filters], use_resource=True)
            beta = tf.get_variable("beta", [filters], initializer=tf.zeros_initializer(), use_resource=True)
            x = tf.nn.conv2d(x, weights, strides=[1, strides, strides, 1], padding=padding)
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            return tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, beta, None, 1e-3))

    def pool(self, x: Any, kind: str = "avg", size: int = 3, strides: int = 1, padding: str = "SAME") -> Any:
        function = self.tf.nn.avg_pool if kind == "avg" else self.tf.nn.max_pool
        return function(x, ksize=[1, size, size, 1], strides=[1, strides, strides, 1], padding=padding)

    def block_a(self, x: Any, pool_filters: int) -> Any:
        three = self.conv(self.conv(self.conv(x, 64, 1), 96, 3), 96, 3)
        five = self.conv(self.conv(x, 48, 1), 64, 5)
        return self.tf.concat([self.conv(x, 64, 1), five, three, self.conv(self.pool(x), pool_filters, 1)], 3)

    def reduce_a(self, x: Any) -> Any:
        three = self.conv(self.conv(self.conv(x, 64, 1), 96, 3), 96, 3, 2, "VALID")
        return self.tf.concat([self.conv(x, 384, 3, 2, "VALID"), three, self.pool(x, "max", 3, 2, "VALID")], 3)

    def block_b(self, x: Any, filters: int) -> Any:
        seven = self.conv(self.conv(self.conv(x, filters, 1), filters, (1, 7)), 192, (7, 1))
        double = self.conv(x, filters, 1)
        for kernel, count in (((7, 1), filters), ((1, 7), filters), ((7, 1), filters), ((1, 7), 192)):
            double = self.conv(double, count, kernel)
        return self.tf.concat([self.conv(x, 192, 1), seven, double, self.conv(self.pool(x), 192, 1)], 3)

    def reduce_b(self, x: Any) -> Any:
        three = self.conv(self.conv(x, 192, 1), 320, 3, 2, "VALID")
        seven = self.conv(self.conv(self.conv(self.conv(x, 192, 1), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, "VALID")
        return self.tf.concat([three, seven, self.pool(x, "max", 3, 2, "VALID")], 3)

    def block_c(self, x: Any) -> Any:
        one = self.conv(x, 384, 1)
        two = self.conv(self.conv(x, 448, 1), 384, 3)
        split = [self.conv(y, 384, k) for y in (one, two) for k in ((1, 3), (3, 1))]
        return self.tf.concat([self.conv(x, 320, 1), *split, self.conv(self.pool(x), 192, 1)], 3)

    def logits(self, x: Any) -> Any:
        for filters, kernel, strides, padding in (
            (32, 3, 2, "VALID"),
            (32, 3, 1, "VALID"),
            (64, 3, 1, "SAME"),
        ):
            x = self.conv(x, filters, kernel, strides, padding)
        x = self.conv(self.conv(self.pool(x, "max", 3, 2, "VALID"), 80, 1), 192, 3, 1, "VALID")
        x = self.pool(x, "max", 3, 2, "VALID")
        for filters in (32, 64, 64):
            x = self.block_a(x, filters)
        x = self.reduce_a(x)
        for filters in (128, 160, 160, 192):
            x = self.block_b(x, filters)
        x = self.reduce_b(x)
        x = self.block_c(self.block_c(x))
        tf = self.tf
        weights = tf.get_variable("logits", [int(x.shape[-1]), 1000], use_resource=True)
        return tf.matmul(tf.reduce_mean(x, [1, 2]), weights)


def main(tf: Any) -> dict[str, float]:
    start = time.perf_counter()
    images = tf.placeholder(tf.float32, [32, 299, 299, 3])
    labels = tf.placeholder(tf.int32, [32])
    logits = Inception(tf).logits(images)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    forward = time.perf_counter() - start
    tf.train.RMSPropOptimizer(0.045, 0.9, 0.9, 1.0).minimize(loss)
    total = time.perf_counter() - start
    operations = len(tf.get_default_graph().get_operations())
    return {
        "forward": forward,
        "with gradients and optimizer": total,
        "nodes": operations,
        "µs per node": 1e6 * total / operations,
    }


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf)))
