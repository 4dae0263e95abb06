"""Run a program and tell how its steps are compiled: stages, islands, reasons.

Prints, to the standard error stream, for each new kind of step the size of its graph after each stage and the islands
and host operations that it became, and every compilation with its reason and the seconds it took.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.runtime import explain
from anabranch.tools.run import parse_program, program_parser, run_program


def main(arguments: Sequence[str]) -> int:
    """`anabranch explain script.py args...`"""
    parser = program_parser(
        "anabranch explain",
        "Runs a program and prints, to the standard error stream, how its steps are compiled. From inside a program, "
        f"the environment variable {explain.EXPLAIN_VARIABLE}=1 does the same.",
    )
    _, program = parse_program(parser, arguments)
    explainer = explain.enable()
    try:
        return run_program(parser, program)
    finally:
        explainer.print_summary()
