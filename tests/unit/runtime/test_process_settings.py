"""What a program sets for its process, it reads again; what there is not, is refused."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.runtime.process_settings import process_settings


@pytest.fixture(autouse=True)
def as_at_the_beginning() -> Any:
    yield
    process_settings.reset()


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (tf.config.optimizer, "jit", True),
        (tf.config.threading, "inter_op_parallelism_threads", 3),
        (tf.config.threading, "intra_op_parallelism_threads", 2),
        (tf.config.experimental, "device_policy", "explicit"),
        (tf.config.experimental, "synchronous_execution", False),
        (tf.debugging, "log_device_placement", True),
    ],
)
def test_what_is_set_is_read(module: Any, name: str, value: Any) -> None:
    assert getattr(module, f"get_{name}")() != value
    getattr(module, f"set_{name}")(value)
    assert getattr(module, f"get_{name}")() == value


def test_options_of_the_optimizer_add_up() -> None:
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    tf.config.optimizer.set_experimental_options({"remapping": True})
    assert tf.config.optimizer.get_experimental_options() == {"constant_folding": False, "remapping": True}


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no optimizer option 'folding'"):
        tf.config.optimizer.set_experimental_options({"folding": True})
    with pytest.raises(ValueError, match="'loud' is no device policy"):
        tf.config.experimental.set_device_policy("loud")
    with pytest.raises(ValueError, match="cannot be -1"):
        tf.config.threading.set_inter_op_parallelism_threads(-1)
