"""What stands for refused classes and modules of TensorFlow: asked about, derived from, and told apart when used."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any

import pytest

from anabranch.core import absent_names
from anabranch.core.refused_names import refusal_of
from anabranch.core.stand_ins import StandInClass, StandInModule, stand_in, stands_in

tf: Any = importlib.import_module("anabranch")  # type checkers do not know what is refused
STRATEGY: Any = tf.distribute.MirroredStrategy
LISTED = [(module, name) for module, names in absent_names.names().items() for name in sorted(names)]


def test_nothing_is_one_of_a_refused_class() -> None:
    assert isinstance(STRATEGY, type)
    assert not isinstance(3, STRATEGY)
    assert not isinstance(tf.constant(1.0), (STRATEGY, tf.keras.Model))
    assert not issubclass(int, STRATEGY)
    assert tf.distribute.MirroredStrategy is STRATEGY, "always the same"
    assert (STRATEGY.__name__, STRATEGY.__module__) == ("MirroredStrategy", "tf.distribute")


def test_making_one_says_why_there_is_none() -> None:
    with pytest.raises(NotImplementedError) as caught:
        STRATEGY(devices=["/cpu:0"])
    assert str(caught.value) == absent_names.absence("distribute", "MirroredStrategy")


@pytest.mark.parametrize(
    ("holder", "name", "told"),
    [
        (tf.lite.TFLiteConverter, "from_session", "tf.lite.TFLiteConverter; it converts graphs"),
        (tf.lite.constants, "FLOAT", "tf.lite.constants.FLOAT; it converts graphs"),
        (tf.keras.backend, "abs", "tf.keras.backend.abs; the package keras"),
        (tf.tpu.experimental, "embedding_column", "tf.tpu.experimental.embedding_column; its functions rewrite"),
    ],
)
def test_an_attribute_says_why_there_is_none(holder: Any, name: str, told: str) -> None:
    assert not hasattr(holder, name)
    with pytest.raises(AttributeError, match=f"anabranch has no {told}"):
        getattr(holder, name)


def test_programs_derive_from_them_beside_abstract_classes() -> None:
    class Callable(ABC):
        @abstractmethod
        def call(self) -> int: ...

    class Model(tf.keras.Model, Callable):  # type: ignore[misc]
        kind = "own"

        def call(self) -> int:
            return 1

    assert issubclass(Model, tf.keras.Model)
    assert Model.kind == "own"
    with pytest.raises(NotImplementedError, match=r"has no tf.keras.Model; .*Model derives from it\)$"):
        Model()
    with pytest.raises(AttributeError, match=r"has no tf.keras.Model; .*derives from it\)$"):
        _ = Model.nosuch
    assert not stands_in(Model), "it is the program's own"


def test_each_refused_name_with_a_capital_has_one() -> None:
    """All but those of operation types, which are functions, and of constants."""
    without = {
        f"{module}.{name}"
        for module, name in LISTED
        if name[0].isupper() and refusal_of(f"{module}.{name}".strip(".")) and stand_in(module, name) is None
    }
    assert all(path.startswith(("raw_ops.", "lite.constants.")) for path in without), without
    assert isinstance(stand_in("distribute", "experimental"), StandInModule)
    assert isinstance(stand_in("contrib.distribute", "MirroredStrategy"), StandInClass)
    assert stand_in("", "load_library") is stand_in("nn", "relu") is stand_in("keras", "NoSuch") is None


def test_modules_list_what_is_there_of_them_and_are_not_listed_themselves() -> None:
    assert {"keras", "lite"}.isdisjoint(dir(tf)), "what is there is listed"
    assert "Dense" in dir(tf.keras.layers)
    assert "abs" not in dir(tf.keras.backend)
