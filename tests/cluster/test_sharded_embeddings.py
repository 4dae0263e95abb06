"""Tables over two parameter servers: rows are gathered where they are, and only they travel  (§4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import local_cluster

ROWS, COLUMNS = 20_000, 64
ROW_BYTES = COLUMNS * 4


def test_only_the_rows_that_are_looked_up_travel_and_come_back_as_rows() -> None:
    setter = tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")
    with local_cluster(ps=2, worker=1) as cluster, tf.device(setter):
        table: Any = tf.get_variable(
            "table", [ROWS, COLUMNS], initializer=tf.ones_initializer(), partitioner=tf.fixed_size_partitioner(2)
        )
        assert [part.device for part in table] == ["/job:ps/task:0", "/job:ps/task:1"]
        ids = tf.placeholder(tf.int64, [None])
        columns = tf.placeholder(tf.int64, [None, 2])
        bags = tf.SparseTensor(columns, ids, [8, 50])
        found = tf.nn.embedding_lookup_sparse(table, bags, None, "div", combiner="sum")
        loss = tf.reduce_sum(found)
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        pairs = optimizer.compute_gradients(loss)
        assert all(isinstance(grad, tf.IndexedSlices) for grad, _ in pairs)
        train = optimizer.apply_gradients(pairs)
        graph = tf.get_default_graph()
        updates = [op for op in graph.get_operations() if op.type.startswith(("ResourceScatter", "ResourceSparse"))]
        assert sorted(op.device for op in updates) == ["/job:ps/task:0", "/job:ps/task:1"]
        config = tf.ConfigProto(operation_timeout_in_ms=30_000)
        with tf.Session(cluster.target("worker", 0), config=config) as session:
            session.run(tf.global_variables_initializer())
            # 400 ids of which 8 are distinct, from both parts
            distinct = [0, 1, 2, 9_999, 10_000, 10_001, 15_000, 19_999]
            feeds = {ids: distinct * 50, columns: [(bag, i) for bag in range(8) for i in range(50)]}
            # the first run of each also tells the tasks what to run
            session.run(found, feeds)
            session.run(train, feeds)
            before = cluster.bytes_carried
            values = session.run(found, feeds)
            carried = cluster.bytes_carried - before
            # 8 rows, and the result's 8 to the client; not 400, nor the table's 5 MB
            assert carried < 100 * ROW_BYTES
            np.testing.assert_array_equal(values, np.full((8, COLUMNS), 50 * (1 - 0.5 * 50)))
            before = cluster.bytes_carried
            session.run(train, feeds)
            assert cluster.bytes_carried - before < 100 * ROW_BYTES
            whole = np.concatenate(session.run(list(table)))
            assert set(np.flatnonzero((whole != 1).any(axis=1))) == set(distinct)
