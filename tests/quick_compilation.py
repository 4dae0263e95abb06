"""How programs are compiled where a test looks at the graph and not at the code that is generated for it."""

from __future__ import annotations

#: XLA's options: a small program takes a third of the time. (Parts would be compiled side by side, which costs more
#: than it gains where tests run side by side.)
OPTIONS: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def environment() -> dict[str, str]:
    """The variables with which a child process compiles so."""
    return {"XLA_FLAGS": " ".join(f"--{name}={str(value).lower()}" for name, value in OPTIONS.items())}
