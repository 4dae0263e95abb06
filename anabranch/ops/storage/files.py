"""Whole files as string tensors: reading, writing, matching patterns."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.interrupts import admitted
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.io import gfile
from anabranch.io.whole_files import read_all
from anabranch.ops import shape_rules

ReadFile = define_op("ReadFile", "filename: string -> contents: string", stateful=True, blocking=True)
ReadFile.shape(shape_rules.scalar)
ReadFile.not_differentiable()


@ReadFile.host_kernel
def _(filename: Array) -> bytes:
    with admitted():
        return read_all(filename.item())


WriteFile = define_op("WriteFile", "filename: string, contents: string ->", stateful=True)
WriteFile.shape(shape_rules.no_outputs)
WriteFile.not_differentiable()


@WriteFile.host_kernel
def _(filename: Array, contents: Array) -> None:
    path = filename.item().decode()
    directory = path.rpartition("/")[0]
    if directory:
        gfile.makedirs(directory)
    with gfile.GFile(path, "wb") as file:
        file.write(contents.item())


MatchingFiles = define_op("MatchingFiles", "pattern: string -> filenames: string", stateful=True)
MatchingFiles.not_differentiable()


@MatchingFiles.shape
def _(pattern: TensorShape) -> TensorShape:
    return TensorShape([None])


@MatchingFiles.host_kernel
def _(pattern: Array) -> Any:
    matching = sorted(name for p in pattern.reshape(-1).tolist() for name in gfile.glob(p.decode()))
    names = np.empty(len(matching), np.object_)
    names[:] = [name.encode() for name in matching]
    return names
