"""`tf.contrib.graph_editor`: operations and tensors are selected, edges are moved, parts of a graph are copied."""
