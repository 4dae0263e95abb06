"""Names of TensorFlow that are refused on purpose: each with its reason, in the documents too; none else is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anabranch as tf
from anabranch.core import absent_names
from anabranch.core.refused_names import REFUSALS, RefusedFamily, refusal_of
from anabranch.tools.check import interface

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """The cells of the table of names, by their first."""
    text = DOCUMENT.read_text().partition("## Names that are not there")[2]
    lines = (re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| "))
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_no_name_is_simply_missing() -> None:
    missing = {f"tf.{module}": names.missing for module, names in interface().items() if names.missing}
    assert missing == {}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.family)
def test_each_family_stands_in_the_documents(refusal: RefusedFamily, rows: dict[str, list[str]]) -> None:
    assert f"`{refusal.family}`" in rows, f"docs/differences.md has no row `{refusal.family}`"
    _, why = rows[f"`{refusal.family}`"]
    assert why.startswith(refusal.reason.partition(" (docs/")[0])


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.family)
def test_each_family_has_names_that_are_not_there(refusal: RefusedFamily) -> None:
    paths = [".".join(filter(None, (module, name))) for module, names in absent_names.names().items() for name in names]
    assert any(re.fullmatch(refusal.pattern, path) for path in paths)
    message = absent_names.absence("", next(path for path in paths if re.fullmatch(refusal.pattern, path)))
    assert refusal.reason in message
    assert refusal.instead in message


def test_what_is_recommended_is_there() -> None:
    for refusal in REFUSALS:
        for path in re.findall(r"tf((?:\.\w+)+)", refusal.instead):
            found = tf
            for part in path.strip(".").split("."):
                found = getattr(found, part)


def test_operations_without_kernels_are_told_apart_from_unknown_ones() -> None:
    with pytest.raises(AttributeError, match="no kernel of it for CPUs or GPUs"):
        tf.raw_ops.TPUPartitionedCall
    with pytest.raises(AttributeError, match="NVIDIA"):
        tf.raw_ops.NcclAllReduce
    with pytest.raises(AttributeError, match="no operation type 'Nothing'"):
        tf.raw_ops.Nothing
    assert refusal_of("raw_ops.MatMul") is None


def test_an_imported_graph_says_why() -> None:
    graph_def = tf.GraphDef()
    graph_def.node.add(name="a", op="TPUReplicateMetadata")
    graph_def.node.add(name="b", op="Nothing")
    with tf.Graph().as_default(), pytest.raises(tf.errors.NotFoundError) as caught:
        tf.import_graph_def(graph_def)
    assert "'TPUReplicateMetadata' (node 'a': TensorFlow 1.15 itself has no kernel" in caught.value.message
    assert "'Nothing' (node 'b')" in caught.value.message
