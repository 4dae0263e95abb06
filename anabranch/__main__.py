"""`python -m anabranch` is the command `anabranch`."""

from __future__ import annotations

import sys

from anabranch.tools.command_line import main

if __name__ == "__main__":
    sys.exit(main())
