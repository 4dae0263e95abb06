"""The examples in the help of what clusters and replicas are made with."""

from __future__ import annotations

import contextlib
import inspect
import textwrap
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.pauses import Pauses
from anabranch.distributed.addresses import address_map, parse_address
from anabranch.distributed.cluster_spec import matches_filters
from anabranch.distributed.tf_config import read_tf_config
from tests.example_checker import run_example

INTERNAL = {
    "address_map": address_map,
    "parse_address": parse_address,
    "matches_filters": matches_filters,
    "read_tf_config": read_tf_config,
    "Pauses": Pauses,
}
EXAMPLES = {
    **INTERNAL,
    "ClusterSpec": tf.train.ClusterSpec,
    "task_names": tf.train.ClusterSpec.task_names,
    "visible": tf.train.ClusterSpec.visible,
    "SimpleClusterResolver": tf.distribute.cluster_resolver.SimpleClusterResolver,
    "TFConfigClusterResolver": tf.distribute.cluster_resolver.TFConfigClusterResolver,
    "UnionResolver": tf.distribute.cluster_resolver.UnionResolver,
    "SyncReplicasOptimizer": tf.train.SyncReplicasOptimizer,
    "replica_device_setter": tf.train.replica_device_setter,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    example = textwrap.dedent((inspect.getdoc(EXAMPLES[name]) or "").partition("Example:")[2])
    names: dict[str, Any] = {**INTERNAL, "tf": tf, "np": np}
    with contextlib.closing(tf.Session()) as sess, sess.as_default():
        failed, said = run_example(name, example, {**names, "sess": sess})
    assert failed == 0, said
