"""Replicas in step, run by whichever `tf` is given: what variables, steps and tokens are after each round."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

DEADLINE = 30
A, B, LATE = [1.0, 2.0, 3.0], [3.0, -2.0, 1.0], [100.0, 100.0, 100.0]

#: name -> gradients to aggregate, replicas, first tokens, rounds: (replica, gradient, rows if it is sparse) at once
CASES: dict[str, tuple[int, int, int, list[list[tuple[Any, ...]]]]] = {
    "all": (3, 3, 0, [[(0, A), (1, B), (2, LATE)], [(0, B), (1, B), (2, A)]]),
    "a backup replica": (2, 3, 0, [[(0, A), (1, B)], [(2, LATE)], [(1, B), (2, A)]]),
    "several batches each": (4, 2, 2, [[(0, A), (1, B)], [(0, LATE), (1, A)]]),
    "rows": (
        *(2, 2, 0),
        [[(0, [1.0, 2.0], [0, 2]), (1, [4.0], [2])], [(0, [1.0, 1.0], [1, 1]), (1, [5.0], [0])]],
    ),
}


class Replica:
    """A replica with its own graph and session; number 0 is the chief. Its gradients are fed."""

    def __init__(self, tf: Any, target: str, name: str, index: int) -> None:
        aggregate, total, tokens, rounds = CASES[name]
        sparse = len(rounds[0][0]) == 3
        self.graph = tf.Graph()
        with self.graph.as_default():
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [3], initializer=tf.zeros_initializer())
            with tf.name_scope(f"replica_{index}"):  # the local step is the replica's own, on one task too
                opt = tf.train.SyncReplicasOptimizer(tf.train.MomentumOptimizer(1.0, 0.5), aggregate, total)
                self.feeds = tf.placeholder(tf.float32, [None] if sparse else [3]), tf.placeholder(tf.int32, [None])
                grad = tf.IndexedSlices(*self.feeds, dense_shape=[3]) if sparse else self.feeds[0]
                self.train = opt.apply_gradients([(grad, w)], step)
            hook = opt.make_session_run_hook(index == 0, tokens)
            hook.begin()
            queue = tf.FIFOQueue(-1, step.dtype.base_dtype, shapes=[()], shared_name="sync_token_q")
            self.state = [w, step, opt._local_step, queue.size()]
            init, local_init = tf.global_variables_initializer(), tf.local_variables_initializer()
        self.session = tf.Session(target, graph=self.graph)
        self.coord = tf.train.Coordinator()
        if index == 0:
            self.session.run(init)
        self.session.run(local_init)
        with self.graph.as_default():
            hook.after_create_session(self.session, self.coord)
        self.thread = ThreadPoolExecutor(1)

    def start(self, *values: Any) -> Any:
        return self.thread.submit(self.session.run, self.train, dict(zip(self.feeds, values, strict=False)))

    def close(self) -> None:
        self.coord.request_stop()
        self.session.close()
        self.thread.shutdown()


def run(tf: Any, target: str, name: str) -> list[list[Any]]:
    """After each round, for each replica: the variable, the global step, the local step, the tokens left."""
    found = []
    with contextlib.ExitStack() as stack:
        replicas = []
        for index in range(CASES[name][1]):
            replicas.append(Replica(tf, target, name, index))
            stack.callback(replicas[-1].close)
        for started in CASES[name][3]:
            for step in [replicas[index].start(*values) for index, *values in started]:
                step.result(DEADLINE)
            states = [replica.session.run(replica.state) for replica in replicas]
            found.append([[w.tolist(), *map(int, numbers)] for w, *numbers in states])
    tf.Session.reset(target)
    return found
