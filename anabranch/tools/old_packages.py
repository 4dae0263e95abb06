"""What Pillow and scikit-learn have renamed since TensorFlow 1's programs were written.

The packages are asked for by name when a program has imported them; anabranch itself does not use them here.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from anabranch.core.values import PassedOn

Tell = Callable[[str], None]
Undo = Callable[[], object]


def changes(tell: Tell) -> dict[str, Callable[[ModuleType], Undo]]:
    """By the name of a module: what changes it once it is imported.

    Args:
        tell: is called with the name of what a program uses.
    """
    return {
        "PIL.ImageDraw": functools.partial(_measure_texts, tell=tell),
        "PIL.ImageFont": functools.partial(_measure_fonts, tell=tell),
        "sklearn.manifold": functools.partial(_count_iterations, tell=tell),
        "sklearn.preprocessing": functools.partial(_impute, tell=tell),
    }


def _add(owner: type, name: str, method: Callable[..., Any], tell: Tell) -> Undo:
    """Gives a class a method that it lacks."""
    if hasattr(owner, name):
        return lambda: None

    @functools.wraps(method)
    def told(*values: PassedOn, **options: PassedOn) -> Any:
        tell(f"{owner.__name__}.{name} of Pillow")
        return method(*values, **options)

    setattr(owner, name, told)
    return lambda: delattr(owner, name)


def _measure_texts(module: ModuleType, tell: Tell) -> Undo:
    def size(draw: PassedOn, text: PassedOn, font: PassedOn = None, *values: PassedOn, **options: PassedOn) -> Any:
        """Width and height of a text, as until Pillow 10."""
        *_, right, bottom = draw.textbbox((0, 0), text, font, **options)
        return int(right), int(bottom)

    undo = [_add(module.ImageDraw, name, size, tell) for name in ("textsize", "multiline_textsize")]
    return lambda: [one() for one in undo]


def _measure_fonts(module: ModuleType, tell: Tell) -> Undo:
    def size(font: PassedOn, text: PassedOn, *values: PassedOn, **options: PassedOn) -> Any:
        """Width and height of a text, as until Pillow 10."""
        *_, right, bottom = font.getbbox(text, *values, **options)
        return int(right), int(bottom)

    undo = [_add(owner, "getsize", size, tell) for owner in (module.FreeTypeFont, module.ImageFont)]
    return lambda: [one() for one in undo]


def _count_iterations(module: ModuleType, tell: Tell) -> Undo:
    """Lets `TSNE` take `n_iter`, which is `max_iter` since scikit-learn 1.7."""
    found = module.TSNE
    if "n_iter" in inspect.signature(found.__init__).parameters:
        return lambda: None

    class TSNE(found):  # type: ignore[misc, valid-type]
        def __init__(self, *values: PassedOn, n_iter: int | None = None, **options: PassedOn) -> None:
            if n_iter is not None:
                tell("n_iter of sklearn.manifold.TSNE")
                options.setdefault("max_iter", n_iter)
            super().__init__(*values, **options)

        @classmethod
        def _get_param_names(cls) -> list[str]:
            names: list[str] = found._get_param_names()
            return names

    TSNE.__module__, TSNE.__qualname__ = found.__module__, found.__qualname__
    module.TSNE = TSNE  # type: ignore[attr-defined]

    def undo() -> None:
        module.TSNE = found  # type: ignore[attr-defined]

    return undo


def _impute(module: ModuleType, tell: Tell) -> Undo:
    """Lets the module have `Imputer`, which is `sklearn.impute.SimpleImputer` since scikit-learn 0.22."""
    if hasattr(module, "Imputer") or "__getattr__" in vars(module):  # answered by somebody else
        return lambda: None

    def answer(name: str) -> Any:
        if name != "Imputer":
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)
        tell("sklearn.preprocessing.Imputer")
        return _imputer

    vars(module)["__getattr__"] = answer
    return lambda: vars(module).pop("__getattr__", None)


def _imputer(
    missing_values: PassedOn = "NaN", strategy: str = "mean", axis: int = 0, verbose: int = 0, copy: bool = True
) -> Any:
    """Fills what is missing by columns."""
    if axis != 0:
        raise ValueError("Imputer(axis=1) fills rows, which scikit-learn does no more: transpose the data")
    made = importlib.import_module("sklearn.impute").SimpleImputer
    missing = float("nan") if missing_values == "NaN" else missing_values
    return made(missing_values=missing, strategy=strategy, copy=copy)
