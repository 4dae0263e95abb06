"""A process that runs scripts with one interface, "anabranch" or "tensorflow", as the fuzzer asks it through a pipe."""

from __future__ import annotations

import contextlib
import functools
import os
import runpy
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# `tf.layers` and the recurrent cells of version 1 are in the package tf_keras
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("ANABRANCH_KERNELS", "estimate")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import numpy as np

from tests.fuzz.scripts.observed import Log
from tests.fuzz.wire import serve


def _interface(name: str) -> Any:
    if name == "tensorflow":
        from tests.oracles.genuine import front_end

        return front_end()[0]
    import anabranch as tf

    tf.logging.set_verbosity(tf.logging.FATAL)
    return tf


def _as_written(tf: Any, dataset: Any) -> Any:
    """The dataset without TensorFlow's rewriting, by which errors come earlier than the pipeline has them."""
    if tf.__name__ == "anabranch":
        return dataset
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def _save(tf: Any, saver: Any, session: Any, prefix: str) -> None:
    """Saves a checkpoint in TensorFlow's format."""
    if tf.__name__ != "anabranch":
        saver.save(session, prefix)
        return
    from anabranch.tools.convert import convert

    convert(saver.save(session, f"own-{prefix}"), prefix, "tensorflow")


def run(tf: Any, script: str, given_folder: str | None = None) -> dict[str, Any]:
    """Runs a script in a graph of its own, and in a folder of its own or the one that is given.

    Gives what it showed, and the words of its errors.
    """
    log = Log(tf)
    before = Path.cwd()
    made = tempfile.TemporaryDirectory() if given_folder is None else contextlib.nullcontext(given_folder)
    with made as folder, tf.Graph().as_default():
        os.chdir(folder)
        try:
            path = Path(folder) / "script.py"
            path.write_text(script)
            given = {"tf": tf, "np": np, "see": log.see, "attempt": log.attempt, "walk": log.walk}
            given["save"] = functools.partial(_save, tf)
            given["as_written"] = functools.partial(_as_written, tf)
            with contextlib.suppress(SystemExit):
                runpy.run_path(str(path), given)
        except Exception as error:
            log.fail("script ends", error)
            log.messages[-1] += "\n" + "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
        finally:
            os.chdir(before)
    return {"seen": log.seen, "messages": log.messages}


def _start() -> Callable[[dict[str, Any]], dict[str, Any]]:
    tf = _interface(sys.argv[1])
    return lambda request: run(tf, request["script"], request.get("folder")) if request["request"] == "run" else {}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    serve(_start)
