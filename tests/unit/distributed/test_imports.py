"""A program that is not distributed does not load what carries messages."""

from __future__ import annotations

import subprocess
import sys


def test_zmq_is_imported_with_the_transport_only() -> None:
    program = (
        "import sys, anabranch as tf, anabranch.session; assert 'zmq' not in sys.modules; "
        "import anabranch.distributed.links, anabranch.distributed.peers; assert 'zmq' not in sys.modules; "
        "import anabranch.distributed.transport; assert 'zmq' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
