"""Mesh TensorFlow: a network whose batch is split over two devices of a mesh, trained by Adafactor."""

from __future__ import annotations

import mesh_tensorflow as mtf
import numpy as np
import tensorflow as tf

rng = np.random.RandomState(0)
values = rng.randn(64, 8).astype(np.float32)
kinds = (values @ rng.randn(8, 3)).argmax(1).astype(np.int32)

graph = mtf.Graph()
mesh = mtf.Mesh(graph, "mesh")
batch, wide = mtf.Dimension("batch", 64), mtf.Dimension("wide", 8)
hidden, classes = mtf.Dimension("hidden", 16), mtf.Dimension("classes", 3)
x = mtf.import_tf_tensor(mesh, values, mtf.Shape([batch, wide]))
y = mtf.import_tf_tensor(mesh, kinds, mtf.Shape([batch]))
inner = mtf.layers.dense(x, hidden, activation=mtf.relu, name="inner")
logits = mtf.layers.dense(inner, classes, name="outer")
loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(y, classes), classes))
slopes = mtf.gradients([loss], [v.outputs[0] for v in graph.trainable_variables])
updates = mtf.optimize.AdafactorOptimizer(learning_rate=0.1).apply_grads(slopes, graph.trainable_variables)

placed = mtf.placement_mesh_impl.PlacementMeshImpl(
    mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules("batch:rows"), ["cpu:0", "cpu:0"]
)
lowered = mtf.Lowering(graph, {mesh: placed})
value = lowered.export_to_tf_tensor(loss)
train = [lowered.lowered_operation(update) for update in updates]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(lowered.copy_masters_to_slices())
    before = session.run(value)
    for _ in range(80):
        session.run(train)
    after = session.run(value)
    session.run(lowered.copy_slices_to_masters())
print("loss", before, "->", after)
assert after < 0.1 * before
