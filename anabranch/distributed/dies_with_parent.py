"""Runs a command in this process, which the system kills when the process that started it ends, whatever ends that.

    python -I -S dies_with_parent.py PARENT COMMAND ARGUMENT...

`PARENT` is the process id of the one that starts it. It is a file to run rather than a function to call between fork
and exec, where nothing may be called that takes a lock: a supervisor has threads. It needs nothing but Python's own
library and takes 0.02 s.

Linux has a call for this (`PR_SET_PDEATHSIG`), which outlasts exec. Two of its conditions matter: the *thread* that
started this process must live, and a parent that ended before the call is not noticed, so this looks afterwards. Other
systems have no such call: there, tasks outlive a supervisor that is killed, and have to be ended by hand.
Processes that the command starts in its turn are not included.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """Lets the system kill this process as soon as the thread that started it ends; exits if that has happened."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]} cannot be run: {error.strerror}")
