"""Records what genuine TensorFlow makes of fed values: `python -W ignore -m tests.oracles.record_feeds`.

Writes `tests/fixtures/feeds.json`: for each expression and dtype of a placeholder what comes out, or null if it was
refused. Run in the environment of the benchmarks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from tests.feed_values import DTYPES, EXPRESSIONS, made, told

FIXTURE = Path(__file__).parents[1] / "fixtures" / "feeds.json"


def main() -> None:
    results: dict[str, dict[str, Any]] = {}
    with tf.Graph().as_default():
        placeholders = {name: tf.placeholder(getattr(tf, name)) for name in DTYPES}
        outputs = {name: tf.identity(placeholder) for name, placeholder in placeholders.items()}
        with tf.Session() as session:

            def fed(expression: str, dtype: str) -> list[Any] | None:
                try:
                    result = session.run(outputs[dtype], {placeholders[dtype]: made(expression)})
                    return told(np.asarray(result, object if dtype == "string" else None))
                except Exception:
                    return None

            for expression in EXPRESSIONS:
                results[expression] = {dtype: fed(expression, dtype) for dtype in DTYPES}
    lines = [f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in results.items()]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
