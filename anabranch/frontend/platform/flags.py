"""Command-line flags: `tf.flags`, also reached as `tf.app.flags`: absl's, with what TensorFlow adds to them.

A module defines the flags that it reads, where it reads them; the program parses the command line once:

    tf.flags.DEFINE_integer("steps", 100, "Steps to train.", lower_bound=1)
    FLAGS = tf.flags.FLAGS

    def main(argv):
        train(FLAGS.steps)

    if __name__ == "__main__":
        tf.app.run()

TensorFlow adds that the command line is parsed when a flag is first read, if nobody has parsed it, and that the
functions that define the plain kinds of flags take the argument names of early TensorFlow too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

import absl.app  # defines absl's own flags, before the program defines its flags
import absl.flags

from anabranch.core.values import PassedOn

_Define = TypeVar("_Define", bound=Callable[..., Any])

_EARLY_ARGUMENT_NAMES: Final = {"flag_name": "name", "default_value": "default", "docstring": "help"}

# A flag counts for the first module up the calls that has not said this.
absl.flags.disclaim_key_flags()

# absl names the folder of its log files so, and no program could have a flag of that name, which many have. Some delete
# absl's for that reason, before they import this.
if "log_dir" in absl.flags.FLAGS:
    absl.flags.FLAGS["log_dir"].allow_override = True


class _ProgramFlags:
    """absl's flags of the program, for who reads them without having parsed the command line."""

    __slots__ = (
        "_assigned",
        "_values",
    )  # and no `__dict__`: programs look for `__dict__["__flags"]`, which is that of the values
    _values: absl.flags.FlagValues
    #: what the program put there without a flag of the name, as it could before TensorFlow 1.5
    _assigned: dict[str, object]

    def __init__(self, values: absl.flags.FlagValues) -> None:
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_assigned", {})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._values)

    def __getattr__(self, name: str) -> Any:
        if name in self._values and not self._values.is_parsed():
            self._parse_flags()
        if name in self._assigned and name not in self._values:
            return self._assigned[name]
        return getattr(self._values, name)

    def _parse_flags(self, args: Sequence[str] | None = None) -> list[str]:
        """Parses arguments, those of the process by default, and returns what is no flag, as early TensorFlow did."""
        return self._values([sys.argv[0], *(sys.argv[1:] if args is None else args)], known_only=True)[1:]

    def __setattr__(self, name: str, value: object) -> None:
        if name in self._values:
            setattr(self._values, name, value)
        else:
            self._assigned[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(self._values, name)

    def __dir__(self) -> list[str]:
        return dir(self._values)

    def __getitem__(self, name: str) -> absl.flags.Flag[Any]:
        return self._values[name]

    def __setitem__(self, name: str, flag: absl.flags.Flag[Any]) -> None:
        self._values[name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return str(self._values)

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        return self._values(argv, known_only)


FLAGS: Final = cast(absl.flags.FlagValues, _ProgramFlags(absl.flags.FLAGS))


def _accept_early_names(define: _Define) -> _Define:
    @functools.wraps(define)
    def wrapper(*args: PassedOn, **kwargs: PassedOn) -> Any:
        return define(*args, **{_EARLY_ARGUMENT_NAMES.get(name, name): value for name, value in kwargs.items()})

    return cast(_Define, wrapper)


DEFINE_string = _accept_early_names(absl.flags.DEFINE_string)
DEFINE_boolean = _accept_early_names(absl.flags.DEFINE_boolean)
DEFINE_bool = DEFINE_boolean
DEFINE_float = _accept_early_names(absl.flags.DEFINE_float)
DEFINE_integer = _accept_early_names(absl.flags.DEFINE_integer)
