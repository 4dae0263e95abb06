"""Saves checkpoints of objects with a genuine TensorFlow, for the tests of `tf.train.Checkpoint`.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_object_checkpoint_fixture.py

It writes into `tests/fixtures/object_checkpoints/`: `graph`, by `tf.compat.v1.train.Checkpoint` in a session, with the
slots of two optimizers, a shared variable and a module that holds itself; `eager`, by TensorFlow 2's
`tf.train.Checkpoint`, with a table and an iterator; and `names`, by `tf.compat.v1.train.Saver`, with the variables of
`graph`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

tf1 = tf.compat.v1
FIXTURES = Path(__file__).parents[1] / "fixtures" / "object_checkpoints"


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf1.Variable([1.0, 2.0], name="w", use_resource=True)
        self.parts = [tf1.Variable(3.0, name="part", use_resource=True), {"a/b": tf1.Variable(4.0, name="inner")}]
        self.pair = (tf1.Variable(5.0, name="paired", use_resource=True),)
        self.itself = self


def in_a_session() -> None:
    """`graph` after a step of two optimizers, and the same variables by their names."""
    model = Model()
    adam, momentum = tf1.train.AdamOptimizer(0.5), tf1.train.MomentumOptimizer(0.5, 0.9)
    step = tf1.train.get_or_create_global_step()
    train = [
        adam.minimize(tf.reduce_sum(model.w * model.w), global_step=step, var_list=[model.w]),
        momentum.minimize(model.parts[0] * model.parts[0], var_list=[model.parts[0]]),
    ]
    checkpoint = tf1.train.Checkpoint(model=model, adam=adam, momentum=momentum, step=step, shared=model.w)
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run(train)
        checkpoint.save(str(FIXTURES / "graph"), session=session)
        saver = tf1.train.Saver()
        saver.save(session, str(FIXTURES / "names"), write_meta_graph=False, write_state=False)


def eagerly() -> None:
    """`eager`, with variables, a table and what an iterator over numbers is."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["a", "b"], [1, 2])
    iterator = iter(tf.data.Dataset.range(10))
    next(iterator)
    model: Any = tf.Module()
    model.kernel = tf.Variable([[1.0, 2.0]])
    model.table = table
    tf.train.Checkpoint(model=model, iterator=iterator).write(str(FIXTURES / "eager"))


def main() -> None:
    shutil.rmtree(FIXTURES, ignore_errors=True)
    FIXTURES.mkdir(parents=True)
    with tf.Graph().as_default():
        in_a_session()
    eagerly()
    (FIXTURES / "checkpoint").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
