"""Objects behind handles that an operation makes before they are used, as variables are: sessions initialize them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from anabranch.frontend.arrays.gathering import boolean_mask
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class MadeObject(NamedTuple):
    """An object of the graph.

    Attributes:
        handle: its handle.
        make: makes it, if it is not there yet.
        is_made: a bool, whether it is there.
    """

    handle: Tensor
    make: Operation
    is_made: Tensor


def register_object(made: MadeObject, is_shared: bool = True) -> None:
    """Lets sessions make an object: one that is shared with the model, a local one in each session."""
    collection = GraphKeys.RESOURCES if is_shared else GraphKeys.LOCAL_RESOURCES
    get_default_graph().add_to_collection(collection, made)


def shared_objects() -> list[MadeObject]:
    """The registered objects that belong to the model."""
    objects: list[MadeObject] = get_default_graph().get_collection(GraphKeys.RESOURCES)
    return objects


def local_objects() -> list[MadeObject]:
    """The registered objects that each session has."""
    objects: list[MadeObject] = get_default_graph().get_collection(GraphKeys.LOCAL_RESOURCES)
    return objects


def report_missing_objects(objects: Iterable[MadeObject], name: str = "report_missing_objects") -> Tensor:
    """The names of the objects that are not there: string, shape [n]."""
    listed = list(objects)
    with get_default_graph().name_scope(name):
        names = constant_of(np.array([made.handle.name.encode() for made in listed], object), "Const")
        if not listed:
            return names
        missing: Tensor = boolean_mask(names, raw.LogicalNot(raw.Pack([made.is_made for made in listed])))
        return missing
