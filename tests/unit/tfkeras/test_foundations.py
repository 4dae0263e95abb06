"""What `tf.keras` rests on, without the package keras: orders of bases, shapes, checks of inputs, dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import anabranch as tf
from anabranch.tfkeras import calls, compatibility, downloads, history, package, rebasing, schedules, scopes, shapes

#: how an error names the layer; where shapes differ, TensorFlow has it the other way round
_MINE = "(of layer mine is incompatible with the layer|is incompatible with layer mine): "


def _class(name: str, bases: tuple[type, ...] = (), **members: object) -> Any:
    return type(name, bases, {"__module__": "keras.layers", **members})


@pytest.fixture
def keras() -> Iterator[None]:
    """A package of that name, of which only its own is asked for, for a test."""
    before, served = list(package._loaders), dict(rebasing._served)
    known: dict[str, Any] = {"Named": int}
    utils = SimpleNamespace(_GLOBAL_CUSTOM_OBJECTS=known)
    package.use(lambda name: utils if name == "keras.utils.generic_utils" else ModuleType("keras"))  # type: ignore[arg-type, return-value]
    scopes.provide(lambda: {"Named": str, "Other": float})
    yield
    package._loaders[:] = before
    rebasing._served.clear()
    rebasing._served.update(served)
    scopes._providers.clear()


@pytest.mark.usefixtures("keras")
def test_a_served_class_has_our_base_in_front_of_the_packages() -> None:
    layer = _class("Layer", where=lambda self: "package's base")
    dense = _class("Dense", (layer,), own=lambda self: "package's layer")
    wide = _class("Wide", (dense,))

    @rebasing.serves(layer)
    class Ours(layer):  # type: ignore[misc]
        def where(self) -> str:
            return "ours"

    served = rebasing.served(wide)
    assert [c.__name__ for c in served.__mro__] == ["Wide", "Wide", "Dense", "Dense", "Layer", "Layer", "object"]
    assert (served().where(), served().own()) == ("ours", "package's layer")
    assert (dense().where(), rebasing.served(wide)) == ("package's base", served)
    assert issubclass(served, rebasing.served(dense))
    assert (Ours.__name__, Ours.__module__) == ("Layer", "tensorflow.keras.layers")
    assert rebasing.served(int) is int
    assert rebasing.is_foundation(served)
    assert not rebasing.is_foundation(type("Program", (served,), {}))


@pytest.mark.usefixtures("keras")
def test_methods_of_the_package_get_tuples_and_answer_as_they_are_asked() -> None:
    seen = []

    def build(self: object, input_shape: object) -> None:
        seen.append(input_shape)

    served = rebasing.served(_class("Plain", build=build, compute_output_shape=lambda self, shape: (shape[0], 7)))
    served().build(tf.TensorShape([None, 3]))
    assert seen == [(None, 3)]
    answer = served().compute_output_shape(tf.TensorShape([None, 3]))
    assert isinstance(answer, tf.TensorShape)
    assert answer.as_list() == [None, 7]
    assert served().compute_output_shape((2, 3)) == (2, 7)


@pytest.mark.usefixtures("keras")
def test_names_mean_served_classes_in_a_block_only_and_never_in_place_of_the_programs() -> None:
    known = package.module("utils.generic_utils")._GLOBAL_CUSTOM_OBJECTS
    with scopes.served_classes():
        assert known == {"Named": int, "Other": float}
    assert known == {"Named": int}


def test_without_the_package_an_error_says_what_serves() -> None:
    if not package._loaders:
        with pytest.raises(RuntimeError, match="anabranch run"):
            package.module("layers")


def test_shapes_are_converted_in_structures() -> None:
    given = [tf.TensorShape([2, None]), tf.TensorShape([3])]
    assert shapes.as_tuples(given) == [(2, None), (3,)]
    assert shapes.as_tuples({"a": tf.TensorShape([1])}) == {"a": (1,)}
    assert shapes.as_tuples(tf.TensorShape(None)) is None
    assert shapes.as_tuples((tf.Dimension(4), None)).as_list() == [4, None]
    assert [s.as_list() for s in shapes.as_tensor_shapes([(2, None), (3,)])] == [[2, None], [3]]


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ({"ndim": 3}, [None, 2], "expected ndim=3, found ndim=2"),
        ({"max_ndim": 2}, [1, 2, 3], "expected max_ndim=2"),
        ({"min_ndim": 2}, [4], "expected min_ndim=2"),
        ({"axes": {-1: 5}}, [None, 4], "expected axis -1 .* value 5"),
        ({"shape": (None, 4)}, [2, 3], "expected shape="),
        ({"dtype": "int32"}, [2], "expected dtype=int32"),
    ],
)
def test_inputs_that_a_layer_does_not_take_are_refused(spec: dict[str, Any], shape: list[Any], message: str) -> None:
    whole = {"ndim": None, "max_ndim": None, "min_ndim": None, "axes": {}, "shape": None, "dtype": None} | spec
    with pytest.raises(ValueError, match=f"Input 0 {_MINE}.*{message}"):
        compatibility.check(SimpleNamespace(**whole), tf.placeholder(tf.float32, shape), "mine")
    with pytest.raises(ValueError, match="expects 1 inputs, but it received 2"):
        compatibility.check(SimpleNamespace(**whole), [tf.constant(1.0)] * 2, "mine")


def test_what_depends_on_what_is_found_through_control_inputs_and_long_chains() -> None:
    x, y = tf.constant(1.0), tf.constant(2.0)
    chain = x
    for _ in range(3000):
        chain = chain + 1.0
    with tf.control_dependencies([x]):
        after = tf.no_op()
    apart = y * 2.0
    assert history.reached([chain, after, apart], [x]) == [chain, after]
    assert history.reached([apart], [y]) == [apart]


def test_the_innermost_call_that_was_told_decides_whether_it_trains() -> None:
    assert not calls.in_call()
    with calls.entered(True), calls.entered(None):
        assert calls.in_call()
        assert calls.training() is True
        with calls.entered(False):
            assert calls.training() is False
    assert calls.training() is None


def test_schedules_are_those_of_train_and_are_described() -> None:
    step = tf.constant(7)
    pairs = [
        (schedules.ExponentialDecay(0.1, 5, 0.9), tf.train.exponential_decay(0.1, step, 5, 0.9)),
        (schedules.InverseTimeDecay(0.1, 5, 0.9, True), tf.train.inverse_time_decay(0.1, step, 5, 0.9, True)),
        (schedules.PolynomialDecay(0.1, 5, cycle=True), tf.train.polynomial_decay(0.1, step, 5, cycle=True)),
        (schedules.PiecewiseConstantDecay([3, 8], [1.0, 2.0, 3.0]), tf.constant(2.0)),
        (schedules.CosineDecay(0.1, 10), tf.train.cosine_decay(0.1, step, 10)),
        (schedules.CosineDecayRestarts(0.1, 5), tf.train.cosine_decay_restarts(0.1, step, 5)),
        (schedules.LinearCosineDecay(0.1, 10), tf.train.linear_cosine_decay(0.1, step, 10)),
        (schedules.NoisyLinearCosineDecay(0.1, 10, 0.0), tf.train.linear_cosine_decay(0.1, step, 10)),
    ]
    with tf.Session() as session:
        for schedule, expected in pairs:
            again = schedules.deserialize(schedules.serialize(schedule))
            assert again.get_config() == schedule.get_config()
            assert session.run(again(step)) == pytest.approx(session.run(expected))
    with pytest.raises(ValueError, match="Unknown decay"):
        schedules.deserialize({"class_name": "Linear", "config": {}})


def test_a_data_set_that_cannot_be_downloaded_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", "/homes/keras")

    def load_data(where: str) -> None:
        raise Exception(f"URL fetch failure on {where} : None -- Name or service not known")  # as the package does

    load = downloads.told_where(load_data)
    with pytest.raises(FileNotFoundError, match=r"put what is there at /homes/keras/datasets/mnist\.npz"):
        load("https://a.b/img-datasets/mnist.npz")
    with pytest.raises(FileNotFoundError, match=r"/homes/keras/datasets/cifar-10-batches-py\.tar\.gz is not there"):
        load("https://a.b/cifar-10-python.tar.gz")
    with pytest.raises(FileNotFoundError, match=r"/homes/keras/datasets/fashion-mnist/t10k-labels-idx1-ubyte\.gz"):
        load("https://a.b/t10k-labels-idx1-ubyte.gz")
    with pytest.raises(ZeroDivisionError):
        downloads.told_where(lambda: 1 // 0)()
