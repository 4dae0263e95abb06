"""The submodules that users see (`tf.nn`, `tf.train`, ...): explicit lists of public names, no logic.

The cyclic garbage collector rests while they load, and goes on when the package has loaded: what is made meanwhile
stays for good, and looking through it again and again took a quarter of the time of `import anabranch`.
"""

from __future__ import annotations

import gc

_collecting = gc.isenabled()
gc.disable()


def loaded() -> None:
    """To be called when the package has loaded: the garbage collector goes on where it was on before."""
    gc.freeze()
    if _collecting:
        gc.enable()
