"""`anabranch check`: which names a program uses that are missing, found by reading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.tools import check, command_line
from anabranch.tools.check import interface
from anabranch.tools.name_uses import uses_in
from anabranch.tools.tensorflow_alias import absence_of


def used(source: str, known: frozenset[str] = frozenset()) -> list[tuple[str, int, bool]]:
    return [(use.name.removeprefix("tensorflow."), use.line, use.guarded) for use in uses_in(source.encode(), known)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tensorflow as tf\ntf.nn.relu(1).name", [("nn.relu", 2, False)]),
        ("import tensorflow.contrib.slim\ntensorflow.nn.relu", [("contrib.slim", 1, False), ("nn.relu", 2, False)]),
        ("import tensorflow.nn as n\nn.relu", [("nn", 1, False), ("nn.relu", 2, False)]),
        ("from tensorflow.nn import relu as r\nr(2)", [("nn.relu", 1, False)]),
        ("import tensorflow as tf\nnet = tf.layers\nnet.dense(1)", [("layers", 2, False), ("layers.dense", 3, False)]),
        ("from tensorflow import *\nzeros(1)\nmine(1)\nabs(1)", [("zeros", 2, False)]),
        ("import tensorflow as tf\ndef f(tf):\n  tf.x\nlambda tf: tf.y\n[tf.z for tf in ()]", []),
        ("import tensorflow as tf\ndef f(a=tf.x):\n  return tf.y", [("x", 2, False), ("y", 3, False)]),
        ("try:\n  import tensorflow as tf\nexcept ImportError:\n  tf = None\ntf.x", [("x", 5, False)]),
        ("import tensorflow as tf\ntry:\n  tf.x\nexcept AttributeError:\n  tf.y", [("x", 3, True), ("y", 5, False)]),
        ("import tensorflow as tf\ntry:\n  tf.x\nexcept KeyError:\n  pass", [("x", 3, False)]),
        ("import tensorflow as tf\nif hasattr(tf, 'x'):\n  tf.x.y\n  tf.z", [("x.y", 3, True), ("z", 4, False)]),
        ("import tensorflow as tf\ngetattr(tf, 'x', 0), getattr(tf, 'y')", [("x", 2, True), ("y", 2, False)]),
        ("import tensorflow as tf\nfor tf in (): tf.x", []),
        ("import tensorflow as tf\ntf = tf.compat.v1\ntf.x", [("compat.v1", 2, False), ("x", 3, False)]),
        ("import tensorflow as tf\nclass A:\n  tf = 1\n  def f(self): return tf.x", [("x", 4, False)]),
        ("from .tensorflow import x\nfrom mine import tensorflow\ntensorflow.y", []),
    ],
)
def test_uses(source: str, expected: list[tuple[str, int, bool]]) -> None:
    assert used(source, frozenset({"zeros", "abs"})) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tensorflow.nn.relu", None),
        ("tensorflow.compat.v1.train.Saver.restore", None),
        ("tensorflow.flags.FLAGS.batch_size", None),
        ("tensorflow.python.framework.ops.Graph", None),
        ("tensorflow.python.ops.gen_math_ops.mat_mul", None),
        ("tensorflow.core.framework.types_pb2.DT_FLOAT", None),
        ("tensorflow.train.Saver.nosuch", "anabranch has no tensorflow.train.Saver.nosuch"),
        (
            "tensorflow.distribute.MirroredStrategy",
            "anabranch has no tf.distribute.MirroredStrategy; no strategy",
        ),
        ("tensorflow.nosuch", "anabranch has no tensorflow.nosuch"),
    ],
)
def test_what_is_there(path: str, message: str | None) -> None:
    found = absence_of(path)
    assert found is None if message is None else (found or "").startswith(message)


def test_a_folder_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntf.nn.relu\n" + 2 * "tf.distribute.MirroredStrategy\n")
    assert command_line.main(["check", str(program)]) == 1
    text = capsys.readouterr().out
    assert "distribute.MirroredStrategy" in text
    assert f"{program}:4: tensorflow.distribute.MirroredStrategy" in text
    assert "use 2 names of TensorFlow in 3 places; 1 of these names are missing" in text
    (tmp_path / "old.py").write_text("print 'hello'\n")
    (tmp_path / "torn.py").write_bytes(b"\x00\xff")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "other.py").write_text("import tensorflow as tf\ntf.nosuch\n")
    assert command_line.main(["check", "--json", str(tmp_path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(entry["name"], entry["places"]) for entry in found["absent"]] == [
        ("tensorflow.distribute.MirroredStrategy", [[str(program), 3], [str(program), 4]])
    ]
    assert {Path(name).name for name in found["unreadable"]} == {"old.py", "torn.py"}
    assert "line 1: " in found["unreadable"][str(tmp_path / "old.py")]


def test_asking_whether_something_is_of_a_refused_class_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\ndef f(x, y):\n  return isinstance(x, (int, tf.distribute.MirroredStrategy)) "
        "or issubclass(x, tf.lite.Interpreter) or isinstance(tf.constant(y), tf.Tensor)\n"
    )
    assert command_line.main(["check", str(program)]) == 0
    assert "(1 guarded)" in capsys.readouterr().out
    for wrong in (
        "isinstance(tf.lite.Interpreter(), str)",
        "isinstance(x, tf.nosuch)",
        "isinstance(x, tf.wrap_function)",
    ):
        program.write_text(f"import tensorflow as tf\ndef f(x):\n  return {wrong}\n")
        assert command_line.main(["check", str(program)]) == 1, wrong


def test_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntry:\n  tf.nosuch\nexcept AttributeError:\n  pass\n")
    assert command_line.main(["check", str(program)]) == 0
    assert "(1 guarded)" in capsys.readouterr().out
    assert command_line.main(["check", str(tmp_path / "nosuch")]) == 2
    assert command_line.main(["check", "json.decoder"]) == 0
    with pytest.raises(SystemExit, match="2"):
        command_line.main(["check"])


def test_the_interface_says_what_serves_keras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "interface", dict)
    assert command_line.main(["check", "--interface"]) == 0
    assert "pip install 'anabranch[keras]'" in capsys.readouterr().out
    monkeypatch.setattr(check.keras_package, "installed_version", lambda: "2.3.1")
    assert command_line.main(["check", "--interface"]) == 0
    assert "served by the package keras 2.3.1, which is installed" in capsys.readouterr().out


def test_the_interface_is_counted() -> None:
    whole = interface()
    assert whole["keras"].present == []
    assert whole["keras"].refused["Model"] == "tf.keras"
    assert "relu" in whole["nn"].present
    assert set(whole["raw_ops"].present).isdisjoint(whole["raw_ops"].refused)
    assert sum(sum(map(len, names)) for names in whole.values()) == 3868
