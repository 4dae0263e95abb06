r"""A worker of asynchronous training: a small network for scikit-learn's digits, its variables on parameter servers.

Each worker reads the variables as they are, computes gradients of its own batch, and applies them, without waiting for
the others (§4.4, Fig. 4a). The program is what it would be on TensorFlow 1:

    anabranch cluster run --ps 2 --workers 3 examples/asynchronous_digits.py --steps 2000 --job_name={job} \
        --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}

About twice a second it prints a line: its own steps, the steps of all workers, its loss, and the accuracy on held-out
digits. `cluster_demo.py` draws these.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.tools.demo.digits import CLASSES, SIDE, Digits, batches, load_digits

BATCH = 64
HIDDEN = 128
REPORT_EVERY = 0.4  # s


def network(images: Any) -> Any:
    """One hidden layer; returns logits."""
    hidden = tf.layers.dense(tf.reshape(images, [-1, SIDE * SIDE]), HIDDEN, activation=tf.nn.relu)
    return tf.layers.dense(hidden, CLASSES)


def report(worker: int, steps: int, total: int, loss: float, accuracy: float) -> None:
    print(f"worker {worker} steps {steps} of {total} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


def train(server: Any, cluster: Any, index: int, last_step: int, digits: Digits) -> None:
    """Trains until all workers together have made `last_step` steps."""
    own = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(worker_device=own, cluster=cluster)):
        images = tf.placeholder(tf.float32, [None, SIDE, SIDE, 1])
        labels = tf.placeholder(tf.int32, [None])
        logits = network(images)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
        step = tf.train.get_or_create_global_step()
        update = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    # other workers come and go: a session that does not see them waits for none of them
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    rng = np.random.default_rng(index)
    hooks = [tf.train.StopAtStepHook(last_step=last_step)]
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, config=config, hooks=hooks) as session:
        reported = 0.0
        for steps, (x, y) in enumerate(batches(digits, BATCH, rng), 1):
            if session.should_stop():
                break
            _, value, total = session.run([update, loss, step], {images: x, labels: y})
            if time.monotonic() - reported > REPORT_EVERY and not session.should_stop():
                held_out = {images: digits.test_images, labels: digits.test_labels}
                report(index, steps, int(total), float(value), float(session.run(accuracy, held_out)))
                reported = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", required=True, help="addresses, between commas")
    parser.add_argument("--worker_hosts", required=True, help="addresses, between commas")
    parser.add_argument("--steps", type=int, default=2000, help="of all workers together (2000)")
    options = parser.parse_args()
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    else:
        train(server, cluster, options.task_index, options.steps, load_digits())


if __name__ == "__main__":
    main()
