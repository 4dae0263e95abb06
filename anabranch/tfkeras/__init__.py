"""`tf.keras` on the package keras: its classes on foundations that are as TensorFlow 1.15 has them."""
