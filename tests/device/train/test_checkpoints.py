"""Checkpoint files of a directory, looking into checkpoints, waiting for them, starting variables from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.frontend.variables.partitioned import fixed_size_partitioner
from anabranch.frontend.variables.scope import get_variable, variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph
from anabranch.io.checkpoint_writer import write_checkpoint
from anabranch.session import Session
from anabranch.train import checkpoint_management as management, checkpoint_utils as utils

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    prefix = str(tmp_path / "model-7")
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    write_checkpoint(
        prefix, {"old/w": np.ones((2, 3), np.float32), "old/b": np.full(3, 2.0, np.float32), "table": table}
    )
    management.update_checkpoint_state(str(tmp_path), prefix)
    return prefix


# ---------------------------------------------------------------------- files
def test_the_state_of_a_directory(checkpoint: str) -> None:
    folder = os.path.dirname(checkpoint)
    assert management.latest_checkpoint(folder) == checkpoint
    assert management.checkpoint_exists(checkpoint)
    (time,) = management.get_checkpoint_mtimes([checkpoint, checkpoint + "0"])
    assert abs(time - os.stat(folder).st_mtime) < 60
    management.remove_checkpoint(checkpoint)
    management.remove_checkpoint(checkpoint)
    assert not management.checkpoint_exists(checkpoint)
    assert management.latest_checkpoint(folder) is None
    assert management.latest_checkpoint(folder + "/none") is None


def test_the_state_as_a_message() -> None:
    state = management.generate_checkpoint_state_proto("logs", "/data/logs/m-2", ["logs/m-1"])
    assert state.model_checkpoint_path == "/data/logs/m-2"
    assert list(state.all_model_checkpoint_paths) == ["m-1", "/data/logs/m-2"]
    with pytest.raises(ValueError, match="timestamps"):
        management.generate_checkpoint_state_proto("logs", "m-2", ["m-1", "m-2"], [1.0])


def test_the_meta_graphs_file_belongs_to_all_shards() -> None:
    assert management.meta_graph_filename("a/model-3") == "a/model-3.meta"
    assert management.meta_graph_filename("a/model-3-?????-of-00002", "graph") == "a/model-3.graph"


# ---------------------------------------------------------------------- looking into them
def test_what_a_checkpoint_holds(checkpoint: str) -> None:
    expected = [("old/b", [3]), ("old/w", [2, 3]), ("table", [10, 2])]
    assert utils.list_variables(checkpoint) == expected
    assert utils.list_variables(os.path.dirname(checkpoint)) == expected
    assert utils.load_variable(checkpoint, "old/b").tolist() == [2.0, 2.0, 2.0]
    assert utils.load_variable(checkpoint, "old/b:0").tolist() == [2.0, 2.0, 2.0]
    reader = utils.NewCheckpointReader(checkpoint)
    assert reader.has_tensor("table")
    assert reader.get_variable_to_dtype_map()["table"].name == "float32"
    with pytest.raises(errors.NotFoundError, match="nothing"):
        utils.load_variable(checkpoint, "nothing")
    with pytest.raises(errors.NotFoundError):
        utils.load_checkpoint(checkpoint + "0")


def test_a_directory_without_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file"):
        utils.load_checkpoint(str(tmp_path))


def test_what_tensorflow_saved() -> None:
    assert utils.list_variables(str(FIXTURES / "ref_variables.ckpt")) == [("w", [3, 2])]


# ---------------------------------------------------------------------- waiting
def test_the_iterator_yields_each_latest_once(checkpoint: str) -> None:
    folder = os.path.dirname(checkpoint)
    asked: list[int] = []

    def give_up() -> bool:
        asked.append(len(asked))
        return len(asked) == 2

    found = []
    for prefix in utils.checkpoints_iterator(folder, timeout=0, timeout_fn=give_up):
        found.append(prefix)
        if len(found) == 1:
            write_checkpoint(folder + "/model-8", {"x": np.float32(1)})
            management.update_checkpoint_state(folder, folder + "/model-8")
    assert found == [checkpoint, folder + "/model-8"]
    assert asked == [0, 1]
    assert list(utils.checkpoints_iterator(folder + "/none", timeout=0)) == []
    assert utils.wait_for_new_checkpoint(folder, folder + "/model-8", timeout=0) is None


# ---------------------------------------------------------------------- starting from them
def values_of(*variables: Any) -> list[Any]:
    with Session() as session:
        session.run(global_variables_initializer())
        values: list[Any] = session.run(list(variables))
        return values


def test_variables_start_from_a_checkpoint(checkpoint: str) -> None:
    with Graph().as_default():
        w = Variable(np.zeros((2, 3), np.float32), name="new/w")
        b = Variable(np.zeros(3, np.float32), name="new/b")
        other = Variable(5.0, name="other")
        utils.init_from_checkpoint(checkpoint, {"old/w": w, "old/b": "new/b"})
        assert [v.tolist() for v in values_of(w, b)] == [[[1.0] * 3] * 2, [2.0] * 3]
        assert values_of(other) == [5.0]


@pytest.mark.parametrize("target", ["new/", "/"])
def test_a_whole_scope_starts_from_one(checkpoint: str, target: str) -> None:
    with Graph().as_default():
        with variable_scope(target.rstrip("/")):
            w = get_variable("w", [2, 3])
            b = get_variable("b", [3])
        utils.init_from_checkpoint(os.path.dirname(checkpoint), {"old/": target})
        assert [v.max() for v in values_of(w, b)] == [1.0, 2.0]


def test_parts_start_from_the_whole(checkpoint: str) -> None:
    for form in ("name", "variable", "parts"):
        with Graph().as_default():
            table = get_variable("mine", [10, 2], partitioner=fixed_size_partitioner(3))
            targets = {"name": "mine", "variable": table, "parts": list(table)}
            utils.init_from_checkpoint(checkpoint, [("table", targets[form])])
            np.testing.assert_array_equal(values_of(table.as_tensor())[0], np.arange(20).reshape(10, 2))


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({"nothing": "v"}, ValueError, "Tensor nothing is not found"),
        ({"old/w": "v"}, ValueError, r"Shape of variable v:0 \(\[3\]\) doesn't match .*old/w \(\[2, 3\]\)"),
        ({"old/b": "u"}, ValueError, "'u', which is no variable"),
        ({"old/": "v"}, ValueError, "should map to scope only"),
        ({"old/": "none/"}, ValueError, "no variables"),
        ({"/": "scope/"}, ValueError, "Tensor x is not found"),
        ({"old/b": 3}, TypeError, "variables"),
    ],
)
def test_maps_that_do_not_fit(checkpoint: str, mapping: Any, error: type[Exception], message: str) -> None:
    with Graph().as_default() as graph:
        v = Variable(np.zeros(3, np.float32), name="v")
        Variable(0.0, name="scope/x")
        before = graph.version, v.initializer
        with pytest.raises(error, match=message):
            utils.init_from_checkpoint(checkpoint, mapping)
        assert (graph.version, v.initializer) == before
