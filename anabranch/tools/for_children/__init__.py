"""The folder where Python processes that a program under `anabranch run` starts find the module `tensorflow`.

Such a process, of `multiprocessing` or `subprocess`, begins without the finder that stands in for `tensorflow`. The
folder is in its path, and the module `tensorflow` inside installs the finder when the process imports it: a process
that does not import `tensorflow` notices nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Final

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))


def let_children_import_tensorflow() -> None:
    """Puts the folder into the path of this process and of those that it starts. Calling it twice is allowed.

    In the environment, since every Python started from here reads that; in `sys.path`, since `multiprocessing` gives
    its processes a copy of that instead. In both the place is the one after the program's own folder.
    """
    if FOLDER not in sys.path:
        sys.path.insert(0 if sys.flags.safe_path else 1, FOLDER)
    given = os.environ.get("PYTHONPATH", "")
    if FOLDER not in given.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER, given]) if given else FOLDER
