"""How programs are compiled where a test looks at the graph and not at the code that is generated for it.

A plugin of pytest, too, whose fixtures compile so in the tests' own process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import jaxlib.version
import pytest

#: XLA's options: a small program takes a third of the time. (Parts would be compiled side by side, which costs more
#: than it gains where tests run side by side.)
OPTIONS: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.version.__version_info__ < (0, 11):
    OPTIONS["xla_cpu_use_fusion_emitters"] = False
#: programs that share one of JAX's contexts
CONTEXT_USES = 64


def environment(level: int = 0) -> dict[str, str]:
    """The variables with which a child process compiles so.

    Args:
        level: of XLA's optimization. What runs the same program thousands of times, such as numeric gradients, takes a
            third of the time at level 1.
    """
    options = OPTIONS | {"xla_backend_optimization_level": level}
    return {"XLA_FLAGS": " ".join(f"--{name}={str(value).lower()}" for name, value in options.items())}


@pytest.fixture
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test are compiled without optimizations, on processors.

    Those that JAX makes of single operations, too, for which nobody asks by name.
    """
    import jax
    from jax._src import compiler

    from anabranch.xla import executable

    if jax.default_backend() == "cpu":
        monkeypatch.setattr(executable, "COMPILER_OPTIONS", OPTIONS)
        make = compiler.get_compile_options

        def quick_options(*args: Any, env_options_overrides: Any = None, **keywords: Any) -> Any:
            return make(*args, env_options_overrides=OPTIONS | (env_options_overrides or {}), **keywords)

        monkeypatch.setattr(compiler, "get_compile_options", quick_options)


@pytest.fixture(scope="session")
def shared_dialects() -> Iterator[None]:
    """Programs of one thread share what JAX makes anew for each: half of the time that lowering a small one takes."""
    from jax._src.interpreters import mlir

    make = mlir.make_ir_context
    kept = threading.local()

    def shared() -> Any:
        # renewed, since a context keeps every type and constant that it met
        if not getattr(kept, "uses", 0):
            kept.context, kept.uses = make(), CONTEXT_USES
        kept.uses -= 1
        return kept.context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir, "make_ir_context", shared)
        yield
