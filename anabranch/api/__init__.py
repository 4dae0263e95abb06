"""The submodules that users see (`tf.nn`, `tf.train`, ...): explicit lists of public names, no logic."""
