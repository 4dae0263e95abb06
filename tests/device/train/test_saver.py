"""Saver: nodes, round trips, retention, names and slices, partial restore, errors, other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.frontend.variables.functions import global_variables, global_variables_initializer
from anabranch.frontend.variables.partitioned import fixed_size_partitioner
from anabranch.frontend.variables.scope import get_variable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.io import checkpoint_store
from anabranch.ops import raw
from anabranch.proto.training_pb2 import MetaGraphDef, SaverDef
from anabranch.session import Session
from anabranch.train import saver as saver_module
from anabranch.train.best_checkpoints import BestCheckpoints
from anabranch.train.checkpoint_management import get_checkpoint_state, latest_checkpoint
from anabranch.train.optimizers.adam import AdamOptimizer
from anabranch.train.restoring import restore_partial, restore_report
from anabranch.train.saveables import SaveableObject, SaveSpec
from anabranch.train.saver import Saver


def two_variables() -> tuple[Variable, Variable]:
    return Variable(np.ones((2, 3), np.float32), name="v"), Variable(np.arange(4), name="scope/w")


def initialized() -> Session:
    session = Session()
    session.run(global_variables_initializer())
    return session


# ---------------------------------------------------------------------- round trips
def test_what_was_saved_is_restored(tmp_path: Path) -> None:
    v, w = two_variables()
    saver, session = Saver(), initialized()
    session.run([v.assign_add(np.full((2, 3), 0.5, np.float32)), w.assign([4, 3, 2, 1])])
    prefix = saver.save(session, str(tmp_path / "model"), global_step=12)
    assert prefix == str(tmp_path / "model-12")
    session.run(global_variables_initializer())
    other = Session()
    saver.restore(other, prefix)
    np.testing.assert_array_equal(other.run(v), np.full((2, 3), 1.5, np.float32))
    assert other.run(w).tolist() == [4, 3, 2, 1]
    assert session.run(v)[0, 0] == 1.0
    assert latest_checkpoint(str(tmp_path)) == prefix


def test_the_nodes_have_tensorflows_names() -> None:
    two_variables()
    saver = Saver()
    graph = get_default_graph()
    kinds = {op.name: op.type for op in graph.get_operations() if op.name.startswith("save/")}
    assert kinds["save/Const"] == "PlaceholderWithDefault"
    assert kinds["save/SaveV2"] == "SaveV2"
    assert kinds["save/RestoreV2"] == "RestoreV2"
    assert kinds["save/Assign"] == kinds["save/Assign_1"] == "AssignVariableOp"
    assert kinds["save/restore_all"] == "NoOp"
    definition = saver.as_saver_def()
    assert definition is not None
    assert definition.filename_tensor_name == "save/Const:0"
    assert definition.save_tensor_name == "save/control_dependency:0"
    assert definition.restore_op_name == "save/restore_all"
    assert definition.version == SaverDef.V2
    names = graph.get_operation_by_name("save/SaveV2").inputs[1].op.attrs["value"].tolist()
    assert names == [b"scope/w", b"v"]
    assert Saver(name="mine").as_saver_def().filename_tensor_name == "mine/Const:0"  # type: ignore[union-attr]


@pytest.mark.parametrize("kwargs", [{"sharded": True}, {"restore_sequentially": True}, {"reshape": True}])
def test_other_ways_to_save_and_restore(tmp_path: Path, kwargs: dict[str, Any]) -> None:
    graph = get_default_graph()
    with graph.device("/device:CPU:0"):
        v, _ = two_variables()
    x = Variable(3.0, name="x")
    saver, session = Saver(**kwargs), initialized()
    prefix = saver.save(session, str(tmp_path / "model"), global_step=1)
    assert prefix is not None
    fresh = Session()
    saver.restore(fresh, prefix)
    assert fresh.run(x) == 3.0
    np.testing.assert_array_equal(fresh.run(v), np.ones((2, 3)))
    assert {name for name, _ in _contents(prefix)} == {"v", "scope/w", "x"}
    if "sharded" in kwargs:
        assert {op.type for op in graph.get_operations()} >= {"ShardedFilename", "MergeV2Checkpoints"}
        assert not [name for name in os.listdir(tmp_path) if "-of-00002.index" in name]


def _contents(prefix: str) -> list[tuple[str, list[int]]]:
    with checkpoint_store.open_checkpoint(prefix) as reader:
        return sorted(reader.get_variable_to_shape_map().items())


def test_reshape_takes_as_many_elements_in_another_shape(tmp_path: Path) -> None:
    with Graph().as_default():
        Variable(np.arange(6, dtype=np.float32), name="v")
        prefix = Saver().save(initialized(), str(tmp_path / "model"))
    with Graph().as_default():
        v = Variable(np.zeros((2, 3), np.float32), name="v")
        session = Session()
        Saver(reshape=True).restore(session, prefix)
        np.testing.assert_array_equal(session.run(v), np.arange(6).reshape(2, 3))


def test_names_given_in_a_dictionary(tmp_path: Path) -> None:
    v, _ = two_variables()
    session = initialized()
    prefix = Saver({"other": v}).save(session, str(tmp_path / "model"))
    assert prefix is not None
    assert _contents(prefix) == [("other", [2, 3])]
    session.run(v.assign(np.zeros((2, 3), np.float32)))
    Saver({"other": v}).restore(session, prefix)
    assert session.run(v)[0, 0] == 1.0


def test_parts_of_a_partitioned_variable_are_one_tensor(tmp_path: Path) -> None:
    whole = np.arange(20, dtype=np.float32).reshape(10, 2)

    def build(parts: int) -> Any:
        return get_variable("table", [10, 2], initializer=part, partitioner=fixed_size_partitioner(parts))

    def part(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        begin = partition_info.var_offset[0]
        return whole[begin : begin + shape[0]]

    with Graph().as_default():
        table = build(3)
        session = initialized()
        value = session.run(table.as_tensor())
        prefix = Saver().save(session, str(tmp_path / "model"))
        assert _contents(prefix or "") == [("table", [10, 2])]
    for parts in (1, 4):
        with Graph().as_default():
            table = build(parts)
            session = Session()
            Saver().restore(session, prefix)
            np.testing.assert_array_equal(session.run(raw.Identity(table.as_tensor())), value)
    with Graph().as_default():
        plain = Variable(np.zeros((10, 2), np.float32), name="table")
        session = Session()
        Saver().restore(session, prefix)
        np.testing.assert_array_equal(session.run(plain), value)
    with Graph().as_default():
        table = build(2)
        assert restore_report(get_default_graph(), prefix or "").restored == ["table"]
        assert restore_partial(initialized(), prefix or "", [table]).complete


@pytest.mark.parametrize("sharded", [False, True])
def test_two_slots_of_a_partitioned_variable_are_two_tensors(tmp_path: Path, sharded: bool) -> None:
    """Adam's have one name, but for what makes them unique."""
    slots = ("Adam", "Adam_1")

    def trained(parts: int) -> dict[str, Variable]:
        table = get_variable("table", [10, 2], partitioner=fixed_size_partitioner(parts))
        AdamOptimizer(0.1).minimize(raw.Sum(raw.Square(raw.Identity(table.as_tensor())), [0, 1]))
        return {variable.op.name: variable for variable in global_variables()}

    with Graph().as_default() as graph:
        variables = trained(3)
        session = initialized()
        for _ in range(2):
            session.run(graph.get_operation_by_name("Adam"))
        whole = {s: np.concatenate([session.run(variables[f"table/part_{i}/{s}"]) for i in range(3)]) for s in slots}
        prefix = Saver(sharded=sharded).save(session, str(tmp_path / "model")) or ""
        tables = [(name, [10, 2]) for name in ("table", *(f"table/{s}" for s in slots))]
        assert sorted(_contents(prefix)) == [("beta1_power", []), ("beta2_power", []), *tables]
    with Graph().as_default():
        variables = trained(2)
        session = Session()
        Saver(sharded=sharded).restore(session, prefix)
        for s in slots:
            parts = [session.run(variables[f"table/part_{i}/{s}"]) for i in range(2)]
            np.testing.assert_array_equal(np.concatenate(parts), whole[s])


def test_an_object_says_how_it_is_saved(tmp_path: Path) -> None:
    class Doubled(SaveableObject):
        def __init__(self, variable: Variable) -> None:
            self.variable = variable
            spec = SaveSpec(raw.Mul(variable, 2.0), "", "doubled")
            super().__init__(variable, [spec], "doubled")

        def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
            return self.variable.assign(raw.Mul(restored_tensors[0], 0.5), read_value=False)

    v = Variable(3.0, name="v")
    saver, session = Saver([Doubled(v)]), initialized()
    prefix = saver.save(session, str(tmp_path / "model"))
    assert _contents(prefix or "") == [("doubled", [])]
    session.run(v.assign(0.0))
    saver.restore(session, prefix)
    assert session.run(v) == 3.0


# ---------------------------------------------------------------------- retention
def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    two_variables()
    saver, session = Saver(max_to_keep=2), initialized()
    for step in range(5):
        saver.save(session, str(tmp_path / "model"), global_step=step)
    kept = [str(tmp_path / f"model-{step}") for step in (3, 4)]
    assert saver.last_checkpoints == kept
    assert sorted(name.split(".")[0] for name in os.listdir(tmp_path) if name.endswith(".meta")) == [
        "model-3",
        "model-4",
    ]
    state = get_checkpoint_state(str(tmp_path))
    assert state is not None
    assert list(state.all_model_checkpoint_paths) == kept
    saver.save(session, str(tmp_path / "model"), global_step=3)
    assert saver.last_checkpoints == kept[::-1]


def test_several_threads_save_with_one_saver(tmp_path: Path) -> None:
    """As a program does that has a `Supervisor` save, too."""
    v = get_variable("v", initializer=np.arange(1000.0))
    saver = Saver(max_to_keep=2)
    session = Session()
    session.run(v.initializer)
    together = threading.Barrier(3)

    def save(thread: int) -> None:
        together.wait(20)
        for step in range(3):
            # now and then two of them save the same checkpoint
            saver.save(session, str(tmp_path / "m"), global_step=100 * step + thread % 2, write_meta_graph=False)

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(save, thread) for thread in range(3)]:
            done.result(60)
    state = get_checkpoint_state(str(tmp_path))
    assert state is not None
    kept = list(state.all_model_checkpoint_paths)
    assert saver.last_checkpoints == kept
    assert len(kept) == 2
    assert kept[-1] == state.model_checkpoint_path
    indices = {f"{name}.index.json" for name in kept}
    assert {str(path) for path in tmp_path.glob("*.index.json")} == indices
    session.run(v.assign(np.zeros(1000)))
    saver.restore(session, kept[-1])
    np.testing.assert_array_equal(session.run(v), np.arange(1000.0))


def test_another_process_carries_on_with_the_retention(tmp_path: Path) -> None:
    two_variables()
    saver, session = Saver(max_to_keep=2), initialized()
    for step in (1, 2):
        saver.save(session, str(tmp_path / "model"), global_step=step)
    state = get_checkpoint_state(str(tmp_path))
    assert state is not None
    successor = Saver(max_to_keep=2)
    successor.recover_last_checkpoints([*state.all_model_checkpoint_paths, str(tmp_path / "gone")])
    assert successor.last_checkpoints == list(state.all_model_checkpoint_paths)
    successor.save(session, str(tmp_path / "model"), global_step=3)
    assert not checkpoint_store.checkpoint_exists(str(tmp_path / "model-1"))


def test_one_of_each_stretch_of_time_is_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_variables()
    now = [1000.0]
    monkeypatch.setattr(saver_module.time, "time", lambda: now[0])
    saver, session = Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1.0), initialized()
    for step in range(6):
        now[0] += 1801.0
        saver.save(session, str(tmp_path / "model"), global_step=step, write_meta_graph=False)
    left = [step for step in range(6) if checkpoint_store.checkpoint_exists(str(tmp_path / f"model-{step}"))]
    assert left == [1, 3, 5]


def test_no_limit_on_the_number(tmp_path: Path) -> None:
    two_variables()
    saver, session = Saver(max_to_keep=None), initialized()
    for step in range(7):
        saver.save(session, str(tmp_path / "model"), global_step=step, write_meta_graph=False)
    assert sum(name.endswith(".index.json") for name in os.listdir(tmp_path)) == 7
    assert saver.last_checkpoints == []
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-6")


def test_names_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    step = Variable(7, name="global_step", dtype="int64")
    session = initialized()
    assert Saver(pad_step_number=True).save(session, "model", step) == "model-00000007"
    assert latest_checkpoint(".") == "./model-00000007"
    saver = Saver(save_relative_paths=True)
    assert saver.save(session, str(tmp_path / "sub" / "model"), latest_filename="last") == str(
        tmp_path / "sub" / "model"
    )
    assert 'model_checkpoint_path: "model"' in (tmp_path / "sub" / "last").read_text()
    os.rename(tmp_path / "sub", tmp_path / "moved")
    assert latest_checkpoint(str(tmp_path / "moved"), "last") == str(tmp_path / "moved" / "model")


def test_the_best_are_kept_beside(tmp_path: Path) -> None:
    v = Variable(0.0, name="v")
    saver, session = Saver(), initialized()
    best = BestCheckpoints(saver, str(tmp_path / "best"), keep=2, metric="accuracy", mode="max")
    assert best.best_checkpoint is None
    for step, accuracy in enumerate([0.5, 0.9, 0.7, float("nan"), 0.6, 0.95]):
        session.run(v.assign(accuracy))
        saved = best.save(session, {"accuracy": accuracy, "loss": 1.0}, global_step=step)
        assert (saved is not None) == (step in {0, 1, 2, 5})
    expected = [(str(tmp_path / "best" / "model-5"), 0.95), (str(tmp_path / "best" / "model-1"), 0.9)]
    assert best.checkpoints == expected
    assert saver.last_checkpoints == []
    again = BestCheckpoints(saver, str(tmp_path / "best"), keep=2, metric="accuracy", mode="max")
    assert again.checkpoints == expected
    assert sorted(n for n in os.listdir(tmp_path / "best") if n.endswith(".index.json")) == [
        "model-1.index.json",
        "model-5.index.json",
    ]
    saver.restore(session, again.best_checkpoint)
    assert session.run(v) == np.float32(0.95)
    with pytest.raises(KeyError):
        best.save(session, {"loss": 1.0})
    (tmp_path / "best" / "best_checkpoints.json").write_text("{")
    with pytest.raises(errors.DataLossError, match=r"best_checkpoints\.json"):
        BestCheckpoints(saver, str(tmp_path / "best"))


# ---------------------------------------------------------------------- what does not fit
@pytest.fixture
def saved(tmp_path: Path) -> str:
    with Graph().as_default():
        Variable(np.ones((2, 3), np.float32), name="dense/kernel")
        Variable(np.arange(3, dtype=np.float32), name="dense/bias")
        Variable(5, name="step")
        prefix = Saver().save(initialized(), str(tmp_path / "model"), global_step=3)
        assert prefix is not None
        return prefix


def test_the_error_lists_everything_and_nothing_is_restored(saved: str) -> None:
    bias = Variable(np.zeros(3, np.float32), name="dense/bias")
    Variable(np.zeros((2, 4), np.float32), name="dense/kernel")
    Variable(1.0, name="densely/bias")
    Variable(1.0, name="step")
    saver, session = Saver(), initialized()
    with pytest.raises(errors.NotFoundError) as caught:
        saver.restore(session, saved)
    message = str(caught.value)
    assert "Restoring from checkpoint failed" in message
    assert "Key densely/bias not found in checkpoint" in message
    assert "dense/kernel: wanted float32 [2, 4], stored float32 [2, 3]" in message
    assert "step: wanted float32 [], stored int32 []" in message
    assert session.run(bias).tolist() == [0.0, 0.0, 0.0]


def test_another_shape_alone_is_an_invalid_argument(saved: str) -> None:
    Variable(np.zeros((3, 2), np.float32), name="dense/kernel")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"(?s)mismatch between.*dense/kernel: wanted float32 \[3, 2\]"
    ):
        Saver().restore(Session(), saved)


def test_the_report(saved: str) -> None:
    Variable(np.zeros(3, np.float32), name="dense/bias")
    Variable(np.zeros((2, 4), np.float32), name="dense/kernel")
    Variable(np.zeros(3, np.float32), name="dense_1/step")
    report = restore_report(get_default_graph(), saved)
    assert not report.complete
    assert report.restored == ["dense/bias"]
    assert report.missing == {"dense_1/step": ["step"]}
    assert report.mismatched == {"dense/kernel": ("float32 [2, 4]", "float32 [2, 3]")}
    assert report.extra == ["step"]
    assert "1 of 3 tensors fit" in str(report)
    assert "dense_1/step (the closest: step)" in str(report)


def test_what_fits_is_restored_and_the_rest_left_alone(saved: str) -> None:
    bias = Variable(np.zeros(3, np.float32), name="dense/bias")
    kernel = Variable(np.zeros((2, 4), np.float32), name="dense/kernel")
    session = initialized()
    get_default_graph().finalize()
    report = restore_partial(session, saved)
    assert report.restored == ["dense/bias"]
    assert session.run(bias).tolist() == [0.0, 1.0, 2.0]
    assert not session.run(kernel).any()
    assert restore_partial(session, saved, {"step": bias}).restored == []


def test_restore_without_a_checkpoint(tmp_path: Path) -> None:
    two_variables()
    saver, session = Saver(), Session()
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        saver.restore(session, str(tmp_path / "model"))
    with pytest.raises(ValueError, match="None"):
        saver.restore(session, None)
    with pytest.raises(errors.NotFoundError):
        restore_report(session, str(tmp_path / "model"))
    with pytest.raises(TypeError, match="a session or a graph"):
        restore_report("session", str(tmp_path / "model"))


def test_a_flipped_bit_is_noticed(saved: str) -> None:
    (shard,) = Path(saved).parent.glob("model-3.data*")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    Variable(np.zeros((2, 3), np.float32), name="dense/kernel")
    Variable(np.zeros(3, np.float32), name="dense/bias")
    Variable(0, name="step")
    with pytest.raises(errors.DataLossError, match="damaged"):
        Saver().restore(Session(), saved)


# ---------------------------------------------------------------------- wrong use
def test_what_cannot_be_saved() -> None:
    with pytest.raises(ValueError, match="No variables to save"):
        Saver()
    v, w = two_variables()
    with pytest.raises(ValueError, match="At least two variables have the same name: v"):
        Saver([v, v])
    with pytest.raises(ValueError, match="with two names: a and b"):
        Saver({"a": v, "b": v})
    with pytest.raises(TypeError, match="Not a variable"):
        Saver({"a": 3})
    with pytest.raises(TypeError, match="dict or a list"):
        Saver(3)
    with pytest.raises(ValueError, match="Slices must all be slices"):
        Saver({"a": [v, w]})
    with pytest.raises(ValueError, match="cannot be deferred"):
        Saver([v], defer_build=True)
    with pytest.raises(ValueError, match="save_tensor_name"):
        Saver(saver_def=SaverDef())


def test_a_sharded_checkpoint_may_be_called_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train").mkdir()
    two_variables()
    saver, session = Saver(sharded=True), initialized()
    saver.save(session, "train/checkpoint")
    assert latest_checkpoint("train") == "train/checkpoint"
    saver.restore(session, "train/checkpoint")


def test_wrong_paths_and_sessions(tmp_path: Path) -> None:
    two_variables()
    saver, session = Saver(), initialized()
    with pytest.raises(ValueError, match="collides"):
        saver.save(session, str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="path components"):
        saver.save(session, str(tmp_path / "model"), latest_filename="a/b")
    with pytest.raises(TypeError, match="must be a Session"):
        saver.save("session", str(tmp_path / "model"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Parent directory of .* doesn't exist"):
        saver.save(session, str(tmp_path / "no" / "such" / "model"))
    with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
        saver.save(Session(), str(tmp_path / "model"))
    assert os.listdir(tmp_path) == []


def test_an_empty_saver_does_nothing(tmp_path: Path) -> None:
    raw.NoOp(name="something")
    saver = Saver(allow_empty=True)
    session = Session()
    assert saver.save(session, str(tmp_path / "model"), write_meta_graph=False) is None
    saver.restore(session, str(tmp_path / "model"))
    assert os.listdir(tmp_path) == []


def test_a_deferred_saver_waits_for_build(tmp_path: Path) -> None:
    saver = Saver(defer_build=True)
    v, _ = two_variables()
    session = initialized()
    with pytest.raises(RuntimeError, match="build"):
        saver.save(session, str(tmp_path / "model"))
    saver.build()
    saver.build()
    prefix = saver.save(session, str(tmp_path / "model"))
    saver.restore(session, prefix)
    assert session.run(v).shape == (2, 3)


# ---------------------------------------------------------------------- other processes
WRITER = """
import sys
import threading
import numpy as np
from anabranch.frontend.variables.variables import Variable
from anabranch.frontend.variables.functions import global_variables, global_variables_initializer
from anabranch.session import Session
from anabranch.train.saver import Saver

a, b = (Variable(np.zeros(20_000, np.float32), name=name) for name in "ab")
saver, session = Saver(max_to_keep=1), Session()
session.run(global_variables_initializer())
step = 0
print("ready", flush=True)
while True:
    step += 1
    value = np.full(20_000, step, np.float32)
    a.load(value, session)
    b.load(-value, session)
    saver.save(session, sys.argv[1], write_meta_graph=False, write_state=False)
    saver.save(session, sys.argv[1], global_step=step, write_meta_graph=False)
"""


def test_restoring_while_another_process_saves(tmp_path: Path) -> None:
    target = str(tmp_path / "model")
    a, b = (Variable(np.zeros(20_000, np.float32), name=name) for name in "ab")
    saver, session = Saver(), Session()
    with subprocess.Popen([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline().strip() == "ready"
            seen: set[float] = set()
            stop = time.monotonic() + 20
            while len(seen) < 30 and time.monotonic() < stop:
                assert writer.poll() is None
                if checkpoint_store.checkpoint_exists(target):
                    saver.restore(session, target)
                    seen.add(_one_value(session, a, b))
            assert len(seen) >= 10
        finally:
            writer.kill()
    # killed in the middle of a save: what is there is whole
    saver.restore(session, target)
    latest = latest_checkpoint(str(tmp_path))
    assert latest is not None
    saver.restore(session, latest)
    assert _one_value(session, a, b) > 0


def _one_value(session: Session, a: Variable, b: Variable) -> float:
    """The value of all elements of one version of the two variables."""
    values, negated = session.run([a, b])
    assert (values == values[0]).all()
    np.testing.assert_array_equal(negated, -values)
    return float(values[0])


def test_local_files_by_their_address(tmp_path: Path) -> None:
    v = Variable(1.0, name="v")
    saver = Saver()
    with Session() as session:
        session.run(v.initializer)
        path = saver.save(session, f"file://{tmp_path}/model")
        assert path == f"{tmp_path}/model"
        session.run(v.assign(2.0))
        saver.restore(session, f"file://{path}")
        assert session.run(v) == 1.0
        assert latest_checkpoint(str(tmp_path)) == path


def test_what_is_saved_comes_from_a_processor_of_the_variables_task() -> None:
    graph = get_default_graph()
    with graph.device("/job:ps/device:GPU:0"):
        Variable(1.0, name="v")
    Saver()
    saves = next(op for op in graph.get_operations() if op.type == "SaveV2")
    assert saves.inputs[3].device == "/job:ps/device:CPU:0"


def test_collections_that_a_saver_cannot_write_are_left_out() -> None:
    Variable(1.0, name="v")
    graph, saver, message = get_default_graph(), Saver(), MetaGraphDef()
    for item in (3, 3.5):
        graph.add_to_collection("mixed", item)
        graph.add_to_collection("numbers", float(item))
    for key in ("mixed", "numbers"):
        saver._add_collection_def(message, key)
    assert list(message.collection_def) == ["numbers"]
