"""Worker: what oneDNN's convolutions of VGG-A and AlexNet would gain if arrays were in its own layouts already.

Processor time of the library alone (the extra `native`; float32, channels last), one after the other in one process:
``called`` (as `kernels/native_convolutions.py` does: each call copies what has to be copied; the better of its two
kernels), ``packed`` (data as they lie, the filter in the library's layout beforehand), and ``blocked`` (all three in
its layouts beforehand, as between neighbouring convolutions that hand nothing else on).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from anabranch.kernels import onednn
from anabranch.kernels.crowding import RunnableComputation
from anabranch.kernels.native_calls import prepared
from anabranch.kernels.native_convolutions import Convolution
from anabranch.kernels.onednn import Handle, Stages, Strided
from anabranch.ops.nn.conv import Geometry

CALLS = 7
#: images, filter
SHAPES = (
    ((32, 27, 27, 64), (5, 5, 64, 192)),
    ((32, 13, 13, 192), (3, 3, 192, 384)),
    ((32, 13, 13, 384), (3, 3, 384, 256)),
    ((8, 112, 112, 64), (3, 3, 64, 128)),
    ((8, 56, 56, 128), (3, 3, 128, 256)),
    ((8, 28, 28, 256), (3, 3, 256, 512)),
    ((8, 14, 14, 512), (3, 3, 512, 512)),
)
DIRECTIONS = ("forward", "to the data", "to the filter")
#: what is read, and what is written last
ARGUMENTS = (
    (onednn.SOURCE, onednn.WEIGHTS, onednn.DESTINATION),
    (onednn.WEIGHTS, onednn.DESTINATION_GRADIENT, onednn.SOURCE_GRADIENT),
    (onednn.SOURCE, onednn.DESTINATION_GRADIENT, onednn.WEIGHTS_GRADIENT),
)


def least(run: Callable[[], object]) -> float:
    run()
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def seconds(computation: RunnableComputation, sizes: Sequence[int]) -> float:
    """Of a computation on arrays of so many elements."""
    arrays = [np.ones(size, np.float32) for size in sizes]
    scratch = np.zeros(computation.scratch_bytes, np.uint8)
    places = [array.ctypes.data for array in arrays]
    return least(lambda: computation.run(places, scratch.ctypes.data, scratch.size))


def called(geometry: Geometry, direction: int) -> float:
    described = [Convolution.of(geometry, direction, blocked) for blocked in (False, True)]
    places = (0, 1, 2), (1, 2, 0), (0, 2, 1)
    sizes = [int(np.prod(lengths)) for lengths, _ in (described[0].data, described[0].filter, described[0].output)]
    return min(seconds(prepared(one.text), [sizes[at] for at in places[direction]]) for one in described)


def alone(library: onednn.Library, geometry: Geometry, direction: int, blocked: bool) -> float:
    """The primitive, with nothing copied before and after."""
    one = Convolution.of(geometry, direction, blocked)
    arrays = [Strided(*pair) for pair in (one.data, one.filter, one.output)]
    given = [library.described(array, free=blocked or at == 1) for at, array in enumerate(arrays)]
    x, w, y = (each.value for each in given)
    window = tuple(map(onednn.dimensions, (one.strides, one.dilations, one.low, one.high)))
    if direction == 0:
        forward = (onednn.FORWARD_TRAINING, onednn.CONVOLUTION_DIRECT, x, w, None, y)
        primitive = library.convolution("convolution_forward", *forward, *window)
    elif direction == 1:
        primitive = library.convolution("convolution_backward_data", onednn.CONVOLUTION_DIRECT, x, w, y, *window)
    else:
        kind = "convolution_backward_weights"
        primitive = library.convolution(kind, onednn.CONVOLUTION_DIRECT, x, w, None, y, *window)
    # the descriptions are the primitive's
    outer = [Handle(library.argument(primitive, argument), None) for argument in ARGUMENTS[direction]]
    places = {argument: at for at, argument in enumerate(ARGUMENTS[direction])}
    stages = Stages(library, outer, [], [(primitive, places)])
    return seconds(stages, [library.size(each.value) // 4 + 1 for each in outer])


def main(system: str) -> None:
    library = onednn.library()
    if library is None:
        raise SystemExit(f"the extra native is needed: {onednn.library_state().missing}")
    figures = {}
    for images, filter in SHAPES:
        window = {"strides": [1] * 4, "dilations": [1] * 4, "padding": b"SAME", "explicit_paddings": []}
        geometry = Geometry(window | {"data_format": b"NHWC"}, images, filter, False)
        for direction, name in enumerate(DIRECTIONS):
            what = f"{images} {filter} {name}"
            figures[f"{what}, called"] = called(geometry, direction)
            figures[f"{what}, packed"] = alone(library, geometry, direction, blocked=False)
            figures[f"{what}, blocked"] = alone(library, geometry, direction, blocked=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
