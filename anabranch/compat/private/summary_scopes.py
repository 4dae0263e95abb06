"""What libraries that make summaries of their own ask of `tensorflow.python.ops.summary_op_util`: scopes and tags."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike

_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


def skip_summary() -> bool:
    """Whether this replica leaves its summaries to another one; there is one alone."""
    return False


def clean_tag(name: str | None) -> str | None:
    """A tag without characters that names of operations have not, and without slashes at its start."""
    return name if name is None else _NOT_IN_TAGS.sub("_", name).lstrip("/")


def collect(val: PassedOn, collections: Sequence[str] | None, default_collections: Sequence[str]) -> None:
    """Adds a summary to collections, the default ones where None are given."""
    for key in default_collections if collections is None else collections:
        tf.add_to_collection(key, val)


@contextlib.contextmanager
def summary_scope(
    name: str | None,
    family: str | None = None,
    default_name: str | None = None,
    values: Sequence[TensorLike] | None = None,
) -> Iterator[tuple[str, str]]:
    """A name scope for a summary.

    Args:
        name: of the summary.
        family: what tags begin with; the scope is inside of one of that name.
        default_name, values: as in `tf.name_scope`.

    Yields:
        The tag, which is as unique as the scope, and the scope.
    """
    name, family = clean_tag(name), clean_tag(family)
    with tf.name_scope(name if family is None else f"{family}/{name}", default_name, values) as scope:
        tag = scope.rstrip("/")
        yield tag if family is None else f"{family}/{tag}", scope
