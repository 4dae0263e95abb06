"""Names that TensorFlow had before version 1.0, or has since version 2: each leads to one that is there."""

from __future__ import annotations

import re

import pytest

import anabranch as tf
from anabranch.core import absent_names
from anabranch.core.former_names import INSTEAD, instead_of
from anabranch.tools import tensorflow_alias
from anabranch.tools.private_modules import PRIVATE_MODULES


def test_what_stands_instead_is_there() -> None:
    for former, now in INSTEAD.items():
        assert tensorflow_alias.absence_of(f"tensorflow.{former}") is not None, former
        for name in re.findall(r"\btf\.[\w.]*\w", now):
            assert tensorflow_alias.is_there(name.replace("tf.", "tensorflow.", 1)), (former, name)


def test_ways_out_of_contrib_are_there() -> None:
    for path, way in absent_names._WAYS_OUT.items():
        for name in re.findall(r"\btf\.(?!keras)[\w.]*\w", way.replace("tf.{module}", "")):
            assert tensorflow_alias.is_there(name.replace("tf.", "tensorflow.", 1)), (path, name)


def test_messages() -> None:
    with pytest.raises(AttributeError, match=r"no tf\.mul; instead: tf\.multiply"):
        getattr(tf, "mul")  # noqa: B009 (which the types know to be absent)
    assert instead_of("nn.seq2seq.model_with_buckets") == "tf.contrib.legacy_seq2seq"
    assert instead_of("nn.relu") is None
    for path, said in (
        ("tensorflow.contrib.grid_rnn", "copy the folder tensorflow/contrib/grid_rnn"),
        ("tensorflow.contrib.rnn.NoSuch", r"dir\(tf\.contrib\.rnn\)"),
        ("tensorflow.python.nosuch", "private"),
        ("tensorflow.tools.graph_transforms", "remove_training_nodes"),
        ("tensorflow.nosuch", r"dir\(tf\) lists"),
    ):
        assert re.search(said, tensorflow_alias.absence_of(path) or ""), path


def test_further_private_modules_lead_somewhere() -> None:
    for path in PRIVATE_MODULES:
        served = tensorflow_alias.counterpart(f"tensorflow.{path}")
        needs_package = any(word.split(".")[0] in ("tf_slim", "keras") for word in PRIVATE_MODULES[path].split())
        assert served is not None or needs_package, path
