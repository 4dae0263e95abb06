"""`tf.data`: input pipelines (WP4.5)."""
