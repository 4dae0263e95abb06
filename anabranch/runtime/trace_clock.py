"""The clock of traces and of reports on what waits: seconds since 1970 that never jump.

The clock of a machine is set now and then, by an hour or by days. What is measured with it took a negative time then,
or a day. This one is read from the machine's clock once, when the module is imported, and goes on as the monotonic
clock does; events of several tasks lie on one axis, as far as the clocks of their machines agreed when they started.
"""

from __future__ import annotations

import time
from typing import Final

_ORIGIN: Final = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970, as the machine's clock would say had nobody set it since the process started."""
    return _ORIGIN + time.monotonic()
