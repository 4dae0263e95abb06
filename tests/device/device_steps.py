"""Sessions over several devices, and what their traces tell."""

from __future__ import annotations

from typing import Any

import anabranch as tf

TASK = "/job:localhost/replica:0/task:0/device:"


def config(cpus: int = 2, **options: Any) -> Any:
    return tf.ConfigProto(device_count={"CPU": cpus}, **options)


def traced(session: Any, fetches: Any, feed_dict: Any = None, **options: Any) -> Any:
    """A step's results, and its `RunMetadata`."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.SOFTWARE_TRACE, **options)
    return session.run(fetches, feed_dict, options=options, run_metadata=metadata), metadata


def devices_of(metadata: Any) -> dict[str, str]:
    """What ran -> its device, without the task."""
    return {
        node.node_name: stats.device.removeprefix(TASK)
        for stats in metadata.step_stats.dev_stats
        for node in stats.node_stats
    }
