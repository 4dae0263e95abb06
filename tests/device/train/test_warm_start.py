"""Starting variables from an earlier training, with the same vocabulary and with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

OLD_WORDS = ["mercury", "venus", "mars"]
NEW_WORDS = ["venus", "jupiter", "mercury"]
OLD = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A checkpoint of `w` [3, 4], `b` [4] and `slots/m` [2], and the vocabularies of the rows of `w`."""
    (tmp_path / "old").write_text("\n".join(OLD_WORDS))
    (tmp_path / "new").write_text("\r\n".join(NEW_WORDS) + "\n")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("w", initializer=OLD)
        tf.get_variable("b", initializer=[1.0, 2.0, 3.0, 4.0])
        tf.get_variable("slots/m", initializer=[7.0, 8.0], trainable=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, f"{tmp_path}/model", global_step=3)
    return str(tmp_path)


def initialized(*variables: Any) -> list[Any]:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [session.run(tf.convert_to_tensor(variable)).tolist() for variable in variables]


def made(name: str, shape: list[int], **how: Any) -> Any:
    return tf.get_variable(name, shape, initializer=tf.constant_initializer(-1.0), **how)


# ---------------------------------------------------------------------- which variables
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (".*", {"w": True, "b": True, "slots/m": False}),
        ("b", {"w": False, "b": True, "slots/m": False}),
        (["slots", "w"], {"w": True, "b": False, "slots/m": True}),
        (["slots", ".*/m"], {"w": False, "b": False, "slots/m": True}),
        (None, {"w": False, "b": False, "slots/m": False}),
    ],
)
def test_which_variables_start_from_the_checkpoint(folder: str, chosen: Any, expected: dict[str, bool]) -> None:
    with tf.Graph().as_default():
        variables = [made("w", [3, 4]), made("b", [4]), made("slots/m", [2], trainable=False)]
        tf.train.warm_start(folder, chosen)
        started = [bool(np.all(np.array(value) != -1)) for value in initialized(*variables)]
        assert started == list(expected.values())


def test_variables_themselves_and_other_names(folder: str) -> None:
    with tf.Graph().as_default():
        bias, other = made("layer/bias", [4]), made("other", [4])
        tf.train.warm_start(f"{folder}/model-3", [bias], var_name_to_prev_var_name={"layer/bias": "b"})
        assert initialized(bias, other) == [[1, 2, 3, 4], [-1] * 4]


# ---------------------------------------------------------------------- another vocabulary
def test_rows_follow_their_words(folder: str) -> None:
    vocabulary = tf.train.VocabInfo(f"{folder}/new", 3, 2, f"{folder}/old", backup_initializer=tf.ones_initializer())
    with tf.Graph().as_default():
        w = made("w", [5, 4])
        tf.train.warm_start(folder, None, {"w": vocabulary})
        assert initialized(w) == [[OLD[1].tolist(), [1] * 4, OLD[0].tolist(), [1] * 4, [1] * 4]]


def test_parts_take_their_rows(folder: str) -> None:
    vocabulary = tf.train.VocabInfo(f"{folder}/new", 3, 3, f"{folder}/old")
    with tf.Graph().as_default():
        table = made("table", [6, 4], partitioner=tf.fixed_size_partitioner(3))
        tf.train.warm_start(folder, "table", {"table": vocabulary}, {"table": "w"})
        assert initialized(table) == [[OLD[1].tolist(), [0] * 4, OLD[0].tolist(), *[[0] * 4] * 3]]


@pytest.mark.parametrize("pieces", [1, 3])
def test_columns_follow_their_words(folder: str, pieces: int) -> None:
    Path(folder, "classes").write_text("a\nb\nc\nd\n")
    Path(folder, "more").write_text("c\ne\na\n")
    vocabulary = tf.train.VocabInfo(f"{folder}/more", 3, 1, f"{folder}/classes", axis=1)
    with tf.Graph().as_default():
        w = made("w", [3, 4], partitioner=tf.fixed_size_partitioner(pieces))
        tf.train.warm_start(folder, "w", {"w": vocabulary})
        assert initialized(w) == [[[row[2], 0, row[0], 0] for row in OLD.tolist()]]


def test_only_the_words_that_the_old_training_used(folder: str) -> None:
    vocabulary = tf.train.VocabInfo(f"{folder}/new", 3, 0, f"{folder}/old", old_vocab_size=1)
    with tf.Graph().as_default():
        w = made("w", [3, 4])
        tf.train.warm_start(folder, "w", {"w": vocabulary})
        assert initialized(w) == [[[0] * 4, [0] * 4, OLD[0].tolist()]]


# ---------------------------------------------------------------------- what cannot be
def test_arguments_that_do_not_fit(folder: str) -> None:
    vocabulary = tf.train.VocabInfo(f"{folder}/new", 3, 1, f"{folder}/old")
    with pytest.raises(ValueError, match="axis argument are 0 and 1.  Provided axis: 2"):
        tf.train.VocabInfo("new", 3, 1, "old", axis=2)
    with tf.Graph().as_default():
        made("w", [3, 4])
        with pytest.raises(ValueError, match=r"var_name_to_vocab_info that were not used: \['word'\].*\['w'\]"):
            tf.train.warm_start(folder, ".*", {"word": vocabulary})
        with pytest.raises(ValueError, match=r"var_name_to_prev_var_name that were not used: \['word'\]"):
            tf.train.warm_start(folder, ".*", var_name_to_prev_var_name={"word": "w"})
        with pytest.raises(ValueError, match=r"= 4, but the variable has 3 rows"):
            tf.train.warm_start(folder, ".*", {"w": vocabulary})
        with pytest.raises(ValueError, match="must be a `list` or `str`"):
            tf.train.warm_start(folder, 3)
        with pytest.raises(ValueError, match="all `Variable` or all `str`"):
            tf.train.warm_start(folder, ["w", 3])
        made("whole", [3, 4], dtype=tf.float64)
        with pytest.raises(TypeError, match=r"only float32 is supported. whole:0 has dtype: float64"):
            tf.train.warm_start(folder, ["whole"], {"whole": vocabulary})


def test_operations_that_fail(folder: str) -> None:
    remap, load = tf.raw_ops.GenerateVocabRemapping, tf.raw_ops.LoadAndRemapMatrix
    model, no_columns = f"{folder}/model-3", np.zeros(0, np.int64)

    def loaded(name: str, rows: list[int], columns: Any = no_columns, extra: int = 0, width: int = 4) -> Any:
        return load(
            ckpt_path=model,
            old_tensor_name=name,
            row_remapping=np.array(rows, np.int64),
            col_remapping=columns,
            initializing_values=np.zeros(extra, np.float32),
            num_rows=2,
            num_cols=width,
        )

    files = {"new_vocab_file": f"{folder}/new", "old_vocab_file": f"{folder}/old"}
    with tf.Graph().as_default(), tf.Session() as session:
        for fetch, error, message in [
            (remap(**files, new_vocab_offset=2, num_new_vocab=2).remapping, "InvalidArgument", "has 3 entries"),
            (loaded("w", [0, 1, 2]), "InvalidArgument", "Size of row_remapping is 3 instead of being equal to 2"),
            (loaded("w", [1, 1]), "Unimplemented", "old ID 1 is mapped to both new ID 0 and 1"),
            (loaded("w", [0, 1], extra=1), "InvalidArgument", "contained 1 elements, but 0 of the matrix"),
            (loaded("w", [0, -1], extra=3), "InvalidArgument", "contained 3 elements, but 4 of the matrix"),
            (loaded("w", [0, 1], width=3), "InvalidArgument", "2nd dimension is not num_cols=3"),
            (loaded("b", [0, 1]), "InvalidArgument", "expected a float32 matrix"),
            (loaded("c", [0, 1]), "NotFound", "c"),
            (loaded("w", [0, 7]), "InvalidArgument", "7"),
        ]:
            with pytest.raises(getattr(tf.errors, f"{error}Error"), match=message):
                session.run(fetch)
        in_blocks = load(
            ckpt_path=model,
            old_tensor_name="w",
            row_remapping=[2, 0],
            col_remapping=no_columns,
            initializing_values=[],
            num_rows=2,
            num_cols=4,
            max_rows_in_memory=2,
        )
        assert session.run(in_blocks).tolist() == OLD[[2, 0]].tolist()
