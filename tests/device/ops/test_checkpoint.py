"""SaveV2, RestoreV2 and MergeV2Checkpoints as operations of a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch import errors
from anabranch.graph.graph import Graph
from anabranch.io import checkpoint_store
from anabranch.ops import raw
from anabranch.session import Session


def test_tensors_of_all_kinds_come_back(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ckpt-5")
    values = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(7, np.int64),
        np.array([True, False]),
        np.array([b"a", b"\x00\xff"], np.object_),
        np.array([1 + 2j], np.complex64),
        np.zeros((0, 3), np.float16),
    ]
    names = [f"t{i}" for i in range(len(values))]
    with Graph().as_default(), Session() as session:
        session.run(raw.SaveV2(prefix, names, [""] * len(values), values))
        restored = raw.RestoreV2(
            prefix, names, [""] * len(values), dtypes=["float32", "int64", "bool", "string", "complex64", "float16"]
        )
        for got, expected in zip(session.run(restored), values, strict=True):
            np.testing.assert_array_equal(got, expected)
            assert np.shape(got) == expected.shape
    with checkpoint_store.open_checkpoint(prefix) as reader:
        assert reader.step == 5


def test_slices_make_up_one_tensor(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ckpt")
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    with Graph().as_default(), Session() as session:
        session.run(raw.SaveV2(prefix, ["w", "w"], ["4 3 0,1:-", "4 3 1,3:-"], [whole[:1], whole[1:]]))
        all_of_it, part = raw.RestoreV2(prefix, ["w", "w"], ["", "4 3 0,2:1,2"], dtypes=["float32", "float32"])
        assert part.shape.as_list() == [2, 2]
        assert all_of_it.shape.ndims is None
        np.testing.assert_array_equal(session.run(all_of_it), whole)
        np.testing.assert_array_equal(session.run(part), whole[:2, 1:])


def test_bundles_take_the_place_of_others_and_hold_whole_tensors(tmp_path: Path) -> None:
    prefix = str(tmp_path / "new" / "ckpt")
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    boxes = ["4 3 0,1:-", "4 3 1,3:-"]
    with Graph().as_default(), Session() as session:
        for words in ([b"a", b""], [b"b"]):
            save = raw._SaveTensorBundle(
                prefix, ["w", "w", "words"], [*boxes, ""], [whole[:1], whole[1:], np.array(words, np.object_)]
            )
            session.run(save)
            restored = raw.RestoreV2(prefix, ["w", "words"], ["", ""], dtypes=["float32", "string"])
            got = session.run(restored)
            np.testing.assert_array_equal(got[0], whole)
            assert got[1].tolist() == words
        incomplete = raw._SaveTensorBundle(prefix, ["w"], boxes[:1], [whole[:1]])
        with pytest.raises(errors.InvalidArgumentError, match="the parts of 'w' .* do not make up the whole"):
            session.run(incomplete)
        np.testing.assert_array_equal(session.run(restored)[0], whole)


def test_shards_are_merged_and_removed(tmp_path: Path) -> None:
    target = str(tmp_path / "ckpt-8")
    parts = [f"{target}-{i:05d}-of-00002" for i in range(2)]
    with Graph().as_default() as graph, Session() as session:
        saves = [raw.SaveV2(part, [f"t{i}"], [""], [np.float32(i)]) for i, part in enumerate(parts)]
        with graph.control_dependencies(saves):
            merge = raw.MergeV2Checkpoints(parts, target)
        session.run(merge)
        restored = raw.RestoreV2(target, ["t0", "t1"], ["", ""], dtypes=["float32", "float32"])
        assert session.run(restored) == [0.0, 1.0]
    assert not any(checkpoint_store.checkpoint_exists(part) for part in parts)
    with checkpoint_store.open_checkpoint(target) as reader:
        assert reader.step == 8


def test_what_is_missing_is_listed_whole(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ckpt")
    with Graph().as_default(), Session() as session:
        session.run(raw.SaveV2(prefix, ["layer/kernel"], [""], [1.0]))
        restore = raw.RestoreV2(prefix, ["layer/kernel_1", "nothing"], ["", ""], dtypes=["float32", "float32"])
        with pytest.raises(
            errors.NotFoundError, match=r"Key layer/kernel_1 .*'layer/kernel'\?\); Key nothing not found"
        ):
            session.run(restore)


@pytest.mark.parametrize(
    ("dtype", "spec", "error", "message"),
    [
        ("int32", "", errors.InvalidArgumentError, "expected dtype int32 does not equal original dtype float32"),
        ("float32", "2 0,1", errors.InvalidArgumentError, "slice"),
    ],
)
def test_another_dtype_or_shape(tmp_path: Path, dtype: str, spec: str, error: type[Exception], message: str) -> None:
    prefix = str(tmp_path / "ckpt")
    with Graph().as_default(), Session() as session:
        session.run(raw.SaveV2(prefix, ["t"], [""], [[1.0, 2.0, 3.0]]))
        with pytest.raises(error, match=message):
            session.run(raw.RestoreV2(prefix, ["t"], [spec], dtypes=[dtype]))


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    with Graph().as_default(), Session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="'t' is given twice"):
            session.run(raw.SaveV2(str(tmp_path / "ckpt"), ["t", "t"], ["", ""], [1.0, 2.0]))
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ValueError, match="tensor_names has 2 entries"):
            raw.SaveV2("x", ["t", "u"], [""], [1.0])
