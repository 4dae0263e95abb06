"""Worker: the time that importing a system takes in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

MODULES = {"anabranch": "anabranch", "jax": "jax", "tensorflow": "tensorflow"}
SCRIPT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"

if __name__ == "__main__":
    command = [sys.executable, "-c", SCRIPT.format(MODULES[sys.argv[1]])]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    print(json.dumps({"import": sorted(times)[1]}))
