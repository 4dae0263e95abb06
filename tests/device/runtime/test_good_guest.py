"""A good guest (D13): what the process around us has set, importing the package leaves, and so do steps of ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anabranch.xla.jax_settings import in_wide_types

#: what a program can see of its process: settings of JAX, of the garbage collector, of NumPy, warnings and signals
LOOK = """
import gc, json, locale, logging, os, signal, sys, threading, warnings
import jax, jax.numpy as jnp, numpy as np

def look():
    return json.loads(json.dumps({
        "jax": {name: repr(value) for name, value in jax.config.values.items()},
        "dtypes": [str(f(x).dtype) for f in (jnp.asarray, jax.jit(jnp.abs)) for x in (1.0, 2, np.ones(2), 1j)],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)],
        "numpy": [np.geterr(), {k: repr(v) for k, v in np.get_printoptions().items()}],
        "random": [repr(np.random.get_state()), str(jax.random.key(0))],
        "warnings": [repr(entry) for entry in warnings.filters],
        "signals": [repr(signal.getsignal(s)) for s in sorted(signal.valid_signals())],
        "hooks": [repr(sys.excepthook), repr(threading.excepthook), repr(sys.unraisablehook), repr(sys.displayhook)],
        "interpreter": [sys.getswitchinterval(), sys.getrecursionlimit(), sys.path, sorted(os.environ)],
        "logging": [repr(logging.root.handlers), logging.root.level],
        "threads": [t.name for t in threading.enumerate() if not t.name.startswith("anabranch")],
        "locale": [locale.setlocale(locale.LC_ALL), os.getcwd()],
    }))

def changed(before, after):
    return {key: [before[key], after[key]] for key in before if before[key] != after[key]}

"""

IMPORT = """
before = look()
import anabranch as tf
print(json.dumps(changed(before, look())))
"""

STEPS = """
import anabranch as tf
inside = []

def user_function(x):
    inside.append(str(jnp.asarray(np.float64(x)).dtype))  # JAX as the program knows it
    return x

before = look()
with tf.Graph().as_default():
    x = tf.placeholder(tf.float64, [None])
    v = tf.Variable(np.full(3, 1 / 3), dtype=tf.float64)
    train = v.assign_add(tf.cast(tf.reduce_sum(x), tf.float64) * np.full(3, 1e-12))
    called = tf.py_func(user_function, [tf.reduce_sum(x) + 1e-12], tf.float64)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: [1.0]})
        values = session.run([v, called], {x: [1.0]})
after = look()
for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes", "jax_cpu_enable_async_dispatch"):
    del before["jax"][name], after["jax"][name]  # what the first session configures
found = changed(before, after)
found["inside"] = inside
found["values"] = [values[0].tolist(), float(values[1]), str(values[0].dtype)]
print(json.dumps(found))
"""


def seen_by(program: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOK + program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_importing_changes_nothing() -> None:
    assert seen_by(IMPORT) == {}


@pytest.mark.slow
def test_steps_leave_the_program_the_jax_it_knows() -> None:
    found = seen_by(STEPS)
    values, inside = found.pop("values"), found.pop("inside")
    assert inside == ["float32"]
    assert values == [[1 / 3 + 1e-12] * 3, 1 + 1e-12, "float64"]  # while ours are as wide as they say
    assert found == {}


@pytest.mark.parametrize("own", [None, True, False])
def test_wide_types_end_with_the_call_whatever_the_program_set(own: bool | None) -> None:
    def types(fails: bool) -> str:
        found = str(jnp.asarray(np.float64(1.0)).dtype)
        if fails:
            raise LookupError(found)
        return found

    of_process = types(False)
    with jax.enable_x64(own) if own is not None else contextlib.nullcontext():
        before = types(False)
        assert before == {None: of_process, True: "float64", False: "float32"}[own]
        assert in_wide_types(types, False) == "float64"
        with pytest.raises(LookupError, match="float64"):
            in_wide_types(types, True)
        assert types(False) == before
    assert types(False) == of_process
