"""Worker: how replicas learn together, for `benchmarks.strategies`: processes of parameter servers and workers.

Each worker trains a convolutional network on scikit-learn's digits, with a batch of its own, by one of the rules of
`tf.train.replicas`. A step may have a wait in it, which stands for the computing of a machine of the worker's own, and
now and then a longer one, as of a straggler. The chief notes the shared variables over time; their accuracy on held-out
digits is computed when all is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.tools.demo.digits import CLASSES, SIDE, batches, load_digits
from benchmarks.workers.cluster import free_port

BATCH = 32
#: seconds of the wait that stands for a step's computing
WAIT = 0.03
#: one step in so many of each worker straggles, and waits so many times as long
ONE_IN, TIMES = 12, 8
#: another, as long as those of a large model
LONG_WAIT = 0.25
#: gradients of each worker in a trial; of a trial with long waits
STEPS, FEW_STEPS = 300, 50
#: seconds between two looks of the chief at the variables
LOOK_EVERY = 0.2
RATE = 0.03
#: steps between two means or exchanges, of the rules that have copies
EVERY = 5
_DEADLINE_MS = 120_000


@dataclass(frozen=True)
class Trial:
    """One training.

    Attributes:
        rule: see `optimizer_of`.
        servers: parameter servers.
        workers: replicas.
        wait: seconds that each step waits.
        straggles: whether some steps wait longer.
        steps: gradients of each worker.
    """

    rule: str
    servers: int
    workers: int
    wait: float = WAIT
    straggles: bool = False
    steps: int = STEPS


#: by all rules, on clusters of several sizes
SIZES = ((1, 4), (2, 1), (2, 2), (2, 4))
RULES = ("asynchronous", "synchronous", "averaging", "downpour")
TRIALS = (
    *(Trial(rule, servers, workers) for servers, workers in SIZES for rule in RULES),
    *(Trial(rule, 2, 4, straggles=True) for rule in ("asynchronous", "synchronous", "one backup")),
    *(Trial(rule, 2, 4, LONG_WAIT, steps=FEW_STEPS) for rule in ("asynchronous", "synchronous")),
    # without waits: what the machine itself can do
    *(Trial(rule, 2, workers, 0.0) for workers in (1, 2, 4) for rule in ("asynchronous", "synchronous")),
)


def optimizer_of(trial: Trial) -> Any:
    """An optimizer of the trial's rule, and the global step at which all workers have done their part."""
    # as in DistBelief: robust where the steps of many come together
    optimizer = tf.train.AdagradOptimizer(RATE)
    workers, steps, gradients = trial.workers, trial.steps, trial.workers * trial.steps
    match trial.rule:
        case "asynchronous":
            return tf.train.replicas.asynchronous(optimizer), gradients
        case "synchronous":
            return tf.train.replicas.synchronous(optimizer, aggregate=workers), steps
        case "one backup":
            return tf.train.replicas.synchronous(optimizer, aggregate=workers - 1, backups=1), steps
        case "averaging":
            return tf.train.replicas.averaging(optimizer, every=EVERY, workers=workers), steps // EVERY
        case "downpour":
            local = tf.train.AdagradOptimizer(RATE)
            return tf.train.replicas.downpour(optimizer, fetch=EVERY, push=EVERY, local=local), gradients // EVERY
    raise ValueError(f"there is no rule {trial.rule!r}")


def network(images: Any) -> Any:
    """Two convolutions and two dense layers, 30,000 parameters; returns logits."""
    hidden = tf.layers.conv2d(images, 16, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.conv2d(tf.layers.max_pooling2d(hidden, 2, 2), 32, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.dense(tf.reshape(hidden, [-1, 16 * 32]), 48, activation=tf.nn.relu)
    return tf.layers.dense(hidden, CLASSES)


# ---------------------------------------------------------------------- a trial
def outcome(trial: Trial) -> dict[str, Any]:
    """Gradients per second, the times (s) at which the chief looked, with accuracies, and what was dropped."""
    addresses = {
        "ps": [f"localhost:{free_port()}" for _ in range(trial.servers)],
        "worker": [f"localhost:{free_port()}" for _ in range(trial.workers)],
    }
    told = json.dumps(addresses), json.dumps(dataclasses.asdict(trial))
    with _processes("ps", trial.servers, *told), _processes("worker", trial.workers, *told) as workers:
        # all have compiled their steps: from here on they train
        for process in workers:
            if _line(process) != "compiled":
                raise RuntimeError(f"a worker of {trial} ended before it had run a step")
        began = time.time()
        for process in workers:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [json.loads(_line(process)) for process in workers]
    seconds = max(one["ended"] for one in said) - began
    return {
        "gradients/s": sum(one["steps"] for one in said) / seconds,
        "seconds": seconds,
        "curve": [(at - began, accuracy) for one in said for at, accuracy in one["curve"]],
        "dropped": sum(one["dropped"] for one in said),
        "staleness": max(one["staleness"] for one in said),
    }


@contextlib.contextmanager
def _processes(job: str, count: int, *told: str) -> Iterator[list[subprocess.Popen[str]]]:
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
    command = [sys.executable, "-m", "benchmarks.workers.strategies", *told, job]
    started = [subprocess.Popen([*command, str(index)], text=True, **pipes) for index in range(count)]
    try:
        for process in started:
            if _line(process) != "ready":
                raise RuntimeError(f"a task of {job} ended before it was ready")
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# ---------------------------------------------------------------------- one process
def work(cluster: dict[str, list[str]], trial: Trial, index: int) -> dict[str, Any]:
    """Trains until the global step says that all is done."""
    server = tf.train.Server(cluster, "worker", index)
    print("ready", flush=True)
    digits, rng = load_digits(), np.random.default_rng(index)
    own = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        tf.set_random_seed(1)
        optimizer, last_step = optimizer_of(trial)
        with getattr(optimizer, "local_copies", contextlib.nullcontext)():
            images = tf.placeholder(tf.float32, [None, SIDE, SIDE, 1])
            labels = tf.placeholder(tf.int32, [None])
            loss = tf.losses.sparse_softmax_cross_entropy(labels, network(images))
        step = tf.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step)
    names = sorted(shapes())
    shared = [next(v for v in tf.global_variables() if v.op.name == name) for name in names]
    is_chief = index == 0
    config = tf.ConfigProto(operation_timeout_in_ms=_DEADLINE_MS, device_filters=["/job:ps", own])
    hooks = [optimizer.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=last_step)]
    steps, looked = 0, 0.0
    seen: list[tuple[float, list[Any]]] = []
    rows: Sequence[Any] = ()
    with tf.train.MonitoredTrainingSession(server.target, is_chief, config=config, hooks=hooks) as session:
        for x, y in batches(digits, BATCH, rng):
            if session.should_stop():
                break
            wait = trial.wait * (TIMES if trial.straggles and rng.integers(ONE_IN) == 0 else 1)
            if wait:
                time.sleep(wait)
            session.run(train, {images: x, labels: y})
            steps += 1
            if is_chief and time.time() - looked > LOOK_EVERY and not session.should_stop():
                looked = time.time()
                seen.append((looked, session.run(shared)))
                # the others go on meanwhile: this look may be the one that finds all done
                if not session.should_stop():
                    rows = optimizer.status(session)
            if steps == 1:
                print("compiled", flush=True)
                sys.stdin.readline()
        ended = time.time()
    return {
        # without the first
        "steps": steps - 1,
        "ended": ended,
        "curve": accuracies(digits, names, seen[1:]) if is_chief else [],
        "dropped": sum(row.dropped for row in rows),
        "staleness": max((row.mean_staleness for row in rows), default=0.0),
    }


def shapes() -> dict[str, Any]:
    """The network's variables, by name."""
    with tf.Graph().as_default():
        network(tf.placeholder(tf.float32, [None, SIDE, SIDE, 1]))
        return {v.op.name: v.shape for v in tf.trainable_variables()}


def accuracies(digits: Any, names: list[str], seen: Sequence[tuple[float, list[Any]]]) -> list[tuple[float, float]]:
    """What share of the held-out digits is recognized with each of the values of the variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.constant(digits.test_images)
        right = tf.equal(tf.argmax(network(images), 1, output_type=tf.int32), digits.test_labels)
        share = tf.reduce_mean(tf.cast(right, tf.float32))
        variables = {v.op.name: v for v in tf.trainable_variables()}
        found = []
        for at, values in seen:
            for name, value in zip(names, values, strict=True):
                variables[name].load(value, session)
            found.append((at, float(session.run(share))))
        return found


if __name__ == "__main__":
    addresses, told, job, number = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    if job == "ps":
        serving = tf.train.Server(addresses, "ps", number)
        print("ready", flush=True)
        serving.join()
    print(json.dumps(work(addresses, Trial(**told), number)))
