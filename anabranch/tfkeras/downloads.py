"""Data sets that the package downloads: where to put them by hand, when that fails."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any, Final

from anabranch.core.values import PassedOn

#: how the package's error begins, which has the type `Exception`
_FAILURE: Final = re.compile(r"URL fetch failure on (\S+)")
#: files that are kept by other names, and folders of their own
_KEPT_AS: Final = {
    "cifar-10-python.tar.gz": "cifar-10-batches-py.tar.gz",
    **{
        f"{part}-{kind}-idx{rank}-ubyte.gz": f"fashion-mnist/{part}-{kind}-idx{rank}-ubyte.gz"
        for part in ("train", "t10k")
        for kind, rank in (("images", 3), ("labels", 1))
    },
}


def told_where(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `keras.datasets`, whose error says where it looks for the data.

    Raises:
        FileNotFoundError: (when it is called) they are not on the disk, and could not be downloaded.
    """

    @functools.wraps(function)
    def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            failure = _FAILURE.match(str(error))
            if failure is None:
                raise
            source = failure[1]
            name = os.path.basename(source)
            home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
            place = os.path.join(home, "datasets", _KEPT_AS.get(name, name))
            raise FileNotFoundError(
                f"{place} is not there, or is another file than the package knows, and {source} could not be "
                f"downloaded ({error}); put what is there at {place}"
            ) from error

    return call
