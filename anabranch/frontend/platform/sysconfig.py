"""tf.sysconfig: where this package lies; there is nothing to compile against."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: of TensorFlow's compiled libraries, which are not part of this package
CXX11_ABI_FLAG: Final = 0
MONOLITHIC_BUILD: Final = 0


def get_include() -> str:
    """The folder in which a program may look for header files; there are none in it.

    Raises:
        nothing

    Example:
        >>> tf.sysconfig.get_include().endswith("include")
        True
    """
    return str(_package() / "include")


def get_lib() -> str:
    """The folder of the package.

    Raises:
        nothing

    Example:
        >>> tf.sysconfig.get_lib().endswith("anabranch")
        True
    """
    return str(_package())


def get_compile_flags() -> list[str]:
    """What a compiler would be told: where header files are, and the version of the interface of C++.

    Raises:
        nothing

    Example:
        >>> tf.sysconfig.get_compile_flags()[1:]
        ['-D_GLIBCXX_USE_CXX11_ABI=0']
    """
    return [f"-I{get_include()}", f"-D_GLIBCXX_USE_CXX11_ABI={CXX11_ABI_FLAG}"]


def get_link_flags() -> list[str]:
    """What a linker would be told: there is no library to link with.

    Raises:
        nothing

    Example:
        >>> tf.sysconfig.get_link_flags()
        []
    """
    return []


def _package() -> Path:
    return Path(__file__).resolve().parents[2]
