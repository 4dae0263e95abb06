"""Records the script of every code point, as genuine TensorFlow knows it, in `ops/strings/unicode_scripts.txt`.

.venv-peers/bin/python tests/oracles/make_unicode_scripts.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

TABLE = Path(__file__).parents[2] / "anabranch" / "ops" / "strings" / "unicode_scripts.txt"
HEADING = """\
# The scripts of characters, from the Unicode Character Database (Unicode 13): where a run of code points of one script
# begins (hexadecimal), and the script's number in ICU's enumeration UScriptCode. Made by
# tests/oracles/make_unicode_scripts.py.
"""

if __name__ == "__main__":
    with tf.Session() as session:
        scripts = session.run(tf.raw_ops.UnicodeScript(input=np.arange(0x110000, dtype=np.int32)))
    starts = [0, *(np.flatnonzero(np.diff(scripts)) + 1).tolist()]
    TABLE.write_text(HEADING + "".join(f"{start:x} {scripts[start]}\n" for start in starts))
