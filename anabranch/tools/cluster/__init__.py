"""Start, watch and stop clusters: parameter servers and workers as processes of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.tools.cluster import change, look, page, run_program, start

#: what each subcommand of `anabranch cluster` does, in one line, and the function that does it
_COMMANDS: Final[dict[str, tuple[str, Callable[[Sequence[str]], int]]]] = {
    "start": ("start a cluster: `start local 2 ps 3 workers`", start.main),
    "run": ("run a program as the workers of a cluster of its own", run_program.main),
    "status": ("list the tasks, and name those that do not answer", look.status),
    "page": ("show the cluster in the browser as it works", page.page),
    "logs": ("print what a task has written", look.logs),
    "restart": ("end a task, and start it again", change.restart),
    "scale": ("let fewer tasks of a job run, or all again: `scale worker=2`", change.scale),
    "stop": ("end a cluster", change.stop),
    "keys": ("make the keys that tasks on several machines need", change.keys),
}


def main(arguments: Sequence[str]) -> int:
    """`anabranch cluster ...`"""
    width = max(map(len, _COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {summary}" for name, (summary, _) in _COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="anabranch cluster",
        description=__doc__,
        epilog=f"commands:\n{listed}\n\n`anabranch cluster COMMAND --help` tells more about one of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", choices=list(_COMMANDS), help="what to do")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its arguments")
    if not arguments:
        parser.print_help()
        return 2
    options = parser.parse_args(arguments[:1])
    return _COMMANDS[options.command][1](arguments[1:])
