"""What a program needs around its graph: its entry point, its flags, its log, its data files.

    app               `tf.app`: parse the flags and call main
    flags             `tf.flags` and `tf.app.flags`
    logging           `tf.logging`
    resource_loader   `tf.resource_loader`

None of it knows about graphs, and none of it imports anything but the standard library.
"""

from __future__ import annotations
