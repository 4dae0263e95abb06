"""Growing tables over two parameter servers, shared by workers; plain look-ups send each distinct row once  (§4.2)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster

COLUMNS = 64
ROW_BYTES = COLUMNS * 4
CONFIG = tf.ConfigProto(operation_timeout_in_ms=30_000)


class Worker:
    """A worker's graph and session."""

    def __init__(self, cluster: LocalCluster, index: int, optimizer: tf.train.Optimizer) -> None:
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
                self.table = tf.train.GrowingTable("t", COLUMNS, initializer=tf.ones_initializer(), parts=2)
                self.keys = tf.placeholder(tf.int64, [None])
                self.rows = self.table.lookup(self.keys)
                self.train = optimizer.minimize(tf.reduce_sum(self.rows))
                self.evict = self.table.evict(1000.0)
                self.size = self.table.size()
            self.begin = tf.global_variables_initializer()
            self.saver = tf.train.Saver(sharded=True)
            self.session = tf.Session(cluster.target("worker", index), config=CONFIG)


def test_workers_share_a_table_and_each_distinct_row_travels_once(tmp_path: Path) -> None:
    with local_cluster(ps=2, worker=2) as cluster:
        first, second = (Worker(cluster, i, tf.train.AdagradOptimizer(0.1)) for i in range(2))
        tasks = [v.device for v in first.table.variables]
        assert tasks == ["/job:ps/task:0", "/job:ps/task:1"]
        assert {op.device for op in first.session.graph.get_operations() if op.type == "_FindRows"} == set(tasks)
        first.session.run(first.begin)
        distinct = np.arange(8, dtype=np.int64) * 10**12
        feeds = np.tile(distinct, 50)
        first.session.run(first.train, {first.keys: feeds})
        values = second.session.run(second.rows, {second.keys: distinct})
        # Adagrad: 400 look-ups of 8 keys, each with a gradient of 50
        np.testing.assert_allclose(values, 1 - 0.1 * 50 / np.sqrt(0.1 + 50**2), rtol=1e-5)
        for run in (first.train, first.rows.op):
            before = cluster.bytes_carried
            first.session.run(run, {first.keys: feeds})
            # rows one way, gradients the other; not 400 of them
            assert cluster.bytes_carried - before < 100 * ROW_BYTES
        path = first.saver.save(first.session, str(tmp_path / "model"))
        saved = second.session.run(second.rows, {second.keys: distinct})
        first.session.run(first.begin)
        first.saver.restore(first.session, path)
        np.testing.assert_array_equal(second.session.run(second.rows, {second.keys: distinct}), saved)


def test_tables_grow_while_other_workers_train_and_what_they_use_is_not_evicted() -> None:
    """Each key's row is an exact count of its gradients: no update goes astray, none is lost while variables grow."""
    with local_cluster(ps=2, worker=2) as cluster:
        workers = [Worker(cluster, i, tf.train.MomentumOptimizer(0.125, 0.0)) for i in range(2)]
        workers[0].session.run(workers[0].begin)
        failures = list[BaseException]()

        def work(worker: Worker, seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                for step in range(4):
                    # from few keys to many: the variables double twice meanwhile
                    worker.session.run(worker.train, {worker.keys: rng.integers(0, 90 * (step + 1), 16)})
                    assert worker.session.run(worker.evict) == 0
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(w, i)) for i, w in enumerate(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        seen = [set[int](), set[int]()]
        counts = np.zeros(400)
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            for step in range(4):
                batch = rng.integers(0, 90 * (step + 1), 16)
                seen[seed] |= set(batch.tolist())
                np.add.at(counts, batch, 1)
        assert workers[0].session.run(workers[0].size) == len(seen[0] | seen[1])
        rows = workers[0].session.run(workers[0].rows, {workers[0].keys: np.arange(400)})
        np.testing.assert_allclose(rows[:, 0], 1 - 0.125 * counts)


def test_a_plain_look_up_sends_each_distinct_row_once() -> None:
    setter = tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")
    with local_cluster(ps=2, worker=1) as cluster, tf.device(setter):
        whole: Any = tf.get_variable("whole", [100, COLUMNS], initializer=tf.random_normal_initializer())
        parts = tf.get_variable(
            "parts", [100, COLUMNS], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(2)
        )
        ids = tf.placeholder(tf.int64, [None, 2])
        found = [tf.nn.embedding_lookup(table, ids) for table in (whole, parts)]
        assert [rows.shape.as_list() for rows in found] == [[None, 2, COLUMNS]] * 2
        sums = [tf.reduce_sum(rows) for rows in found]
        gradients = [tf.gradients(total, whole)[0] for total in sums[:1]]
        with tf.Session(cluster.target("worker", 0), config=CONFIG) as session:
            session.run(tf.global_variables_initializer())
            feeds = {ids: np.tile([[3, 99], [50, 3]], (100, 1))}
            assert gradients[0].values.shape.as_list()[1:] == [COLUMNS]
            session.run([sums, gradients[0].indices], feeds)
            before = cluster.bytes_carried
            totals, indices = session.run([sums, gradients[0].indices], feeds)
            assert cluster.bytes_carried - before < 60 * ROW_BYTES
            assert sorted(indices.tolist()) == [3, 50, 99]
            rows = session.run(whole)
            np.testing.assert_allclose(totals[0], 100 * (2 * rows[3] + rows[50] + rows[99]).sum(), rtol=1e-3)


def test_rows_that_a_lost_worker_had_looked_up_can_be_evicted_when_its_step_has_ended() -> None:
    clock = tf.placeholder_with_default(tf.constant(0.0, tf.float64), [])
    with local_cluster(ps=1, worker=2) as cluster:
        with tf.device("/job:ps/task:0"):
            table = tf.train.GrowingTable("t", COLUMNS, initializer=tf.ones_initializer(), clock=clock, grace=1.0)
            keys = tf.placeholder(tf.int64, [None])
            rows = table.lookup(keys)
            begun, gate = (tf.FIFOQueue(1, [tf.int32], shapes=[()], shared_name=name) for name in ("begun", "gate"))
            with tf.control_dependencies([rows]), tf.control_dependencies([begun.enqueue(0)]):
                waits = gate.dequeue()
            has_begun, evict = begun.dequeue(), table.evict(10.0)
        with tf.device("/job:worker/task:0"):
            used = tf.reduce_sum(rows) * tf.cast(waits, tf.float32)
        with tf.Session(cluster.target("worker", 1), config=CONFIG) as session:
            session.run(tf.global_variables_initializer())
            with ThreadPoolExecutor(1) as pool:
                step = pool.submit(session.run, used, {keys: [1, 2]})
                session.run(has_begun)
                assert session.run(evict, {clock: 100.0}) == 0, "a step holds them"
                cluster.lose("/job:worker/replica:0/task:0")
                with pytest.raises(tf.errors.UnavailableError, match="/job:worker/replica:0/task:0"):
                    step.result(30)
            assert session.run(evict, {clock: 100.0}) == 2
