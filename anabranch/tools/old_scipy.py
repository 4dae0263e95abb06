"""What SciPy had for pictures until version 1.2 (`scipy.misc.imread` and its like), by Pillow, and names that moved.

Programs of TensorFlow 1's time read, resize and write their pictures with them. Pillow is imported when one is called.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch.core.values import PassedOn

Pixels = npt.NDArray[Any]
#: Pillow's numbers of resampling filters
_FILTERS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}
_WITH_COLOURS: Final = ("RGB", "RGBA", "YCbCr", "CMYK")
#: functions of `scipy` that were NumPy's
_OF_NUMPY: Final = (
    "arange argmax argsort array asarray ceil concatenate cos dot exp eye floor interp linspace log mean ones pi power "
    "random sin sqrt std sum transpose zeros"
)


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError("scipy.misc read and wrote pictures by Pillow: pip install pillow") from error


def imread(name: PassedOn, flatten: bool = False, mode: str | None = None) -> Pixels:
    """The pixels of a picture in a file, uint8 as a rule.

    Args:
        name: a path or a file.
        flatten: whether the result is one layer of grey, of float32.
        mode: what Pillow is to convert the picture to, such as "RGB".
    """
    with _pillow().open(name) as image:
        return fromimage(image, flatten, mode)


def fromimage(im: PassedOn, flatten: bool = False, mode: str | None = None) -> Pixels:
    """The pixels of a picture of Pillow's; see `imread`."""
    if mode is not None:
        if mode != im.mode:
            im = im.convert(mode)
    elif im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im)


def bytescale(
    data: PassedOn, cmin: float | None = None, cmax: float | None = None, high: int = 255, low: int = 0
) -> Pixels:
    """Numbers as bytes: `cmin`, or the least, becomes `low`, and `cmax`, or the greatest, `high`.

    Raises:
        ValueError: `low` and `high` are no bytes in this order, or `cmax` is less than `cmin`.
    """
    pixels = np.asarray(data)
    if pixels.dtype == np.uint8:
        return pixels
    if not 0 <= low <= high <= 255:
        raise ValueError(f"low and high must be bytes, and low not above high; got {low} and {high}")
    least = pixels.min() if cmin is None else cmin
    span = (pixels.max() if cmax is None else cmax) - least
    if span < 0:
        raise ValueError("`cmax` should be larger than `cmin`.")
    scaled = (pixels - least) * (float(high - low) / (span or 1)) + low
    result: Pixels = (scaled.clip(low, high) + 0.5).astype(np.uint8)
    return result


def toimage(
    arr: PassedOn,
    high: int = 255,
    low: int = 0,
    cmin: float | None = None,
    cmax: float | None = None,
    pal: PassedOn = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """A picture of Pillow's, whose bytes are scaled as `bytescale` does unless they are uint8 already.

    Args:
        arr: [height, width], or with three or four colours, which are the first axis of that size, or `channel_axis`.
        pal: the palette of a picture of one layer.
        mode: Pillow's, such as "L" or "RGBA".

    Raises:
        ValueError: the array has another shape, is complex, or does not fit the mode.
    """
    data = np.asarray(arr)
    if np.iscomplexobj(data):
        raise ValueError("Cannot convert a complex-valued array.")
    if data.ndim == 2:
        return _of_one_layer(data, (high, low, cmin, cmax), pal, mode)
    if data.ndim != 3 or not {3, 4} & {*data.shape}:
        raise ValueError(f"'arr' does not have a suitable array shape for any mode: {data.shape}")
    axis = data.shape.index(3 if 3 in data.shape else 4) if channel_axis is None else channel_axis
    colours = data.shape[axis]
    if colours not in (3, 4):
        raise ValueError(f"Channel axis dimension is not valid: {colours} in shape {data.shape}")
    mode = mode or ("RGB" if colours == 3 else "RGBA")
    if mode not in _WITH_COLOURS or (mode in ("RGB", "YCbCr")) != (colours == 3):
        raise ValueError(f"an array of shape {data.shape} has {colours} colours, which mode {mode!r} does not fit")
    pixels = np.moveaxis(bytescale(data, cmin, cmax, high, low), axis, 2)
    return _pillow().frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def _of_one_layer(
    data: Pixels, limits: tuple[int, int, float | None, float | None], pal: PassedOn, mode: str | None
) -> Any:
    high, low, cmin, cmax = limits
    size = data.shape[1], data.shape[0]
    if mode == "F":
        return _pillow().frombytes(mode, size, data.astype(np.float32).tobytes())
    if mode in (None, "L", "P"):
        image = _pillow().frombytes("L", size, bytescale(data, cmin, cmax, high, low).tobytes())
        if pal is not None:
            image.putpalette(np.asarray(pal, np.uint8).tobytes())
        elif mode == "P":
            image.putpalette(np.repeat(np.arange(256, dtype=np.uint8), 3).tobytes())
        return image
    if mode == "1":
        return _pillow().fromarray(data > high)
    if mode == "I":
        least = data.min() if cmin is None else cmin
        scaled = (data * 1.0 - least) * (high - low) / ((data.max() if cmax is None else cmax) - least) + low
        return _pillow().frombytes(mode, size, scaled.astype(np.uint32).tobytes())
    raise ValueError(f"an array of shape {data.shape} is one layer, which mode {mode!r} does not fit")


def imsave(name: PassedOn, arr: PassedOn, format: str | None = None) -> None:
    """Writes an array as a picture, scaled as `toimage` does.

    Args:
        arr: [height, width] or [height, width, 3 or 4].
        format: of the file; None: what the name's end says.
    """
    toimage(arr, channel_axis=2).save(name, format)


def imresize(arr: PassedOn, size: PassedOn, interp: str = "bilinear", mode: str | None = None) -> Pixels:
    """A picture in another size; the pixels are scaled as `toimage` does first.

    Args:
        size: (height, width); or how many per cent of the size (an int), or what part of it (a float).
        interp: "nearest", "lanczos", "bilinear", "bicubic" or "cubic".
        mode: as in `toimage`.
    """
    image = toimage(arr, mode=mode)
    if isinstance(size, int | np.integer | float | np.floating):
        part = float(size) if isinstance(size, float | np.floating) else size / 100
        wanted = tuple((np.array(image.size) * part).astype(int).tolist())
    else:
        wanted = (int(size[1]), int(size[0]))
    return fromimage(image.resize(wanted, resample=_FILTERS[interp]))


def imrotate(arr: PassedOn, angle: float, interp: str = "bilinear") -> Pixels:
    """A picture turned by degrees against the clock, about its middle."""
    return fromimage(toimage(arr).rotate(angle, resample=_FILTERS[interp]))


def lazily(module: str, name: str) -> Callable[..., Any]:
    """A function of a module, which is imported when it is called."""

    def moved(*values: PassedOn, **options: PassedOn) -> Any:
        return getattr(importlib.import_module(module), name)(*values, **options)

    moved.__name__ = name
    return moved


def names_of_misc() -> dict[str, object]:
    """What `scipy.misc` had."""
    own: tuple[Callable[..., object], ...] = (imread, imsave, imresize, imrotate, toimage, fromimage, bytescale)
    special: dict[str, object] = {
        name: lazily("scipy.special", name) for name in ("comb", "factorial", "factorial2", "logsumexp")
    }
    return {function.__name__: function for function in own} | special


def names_of_package() -> dict[str, object]:
    """What `scipy` itself had: functions of NumPy's, `scipy.misc` without an import of its own."""
    return {name: getattr(np, name) for name in _OF_NUMPY.split()}


def names_elsewhere() -> dict[str, dict[str, object]]:
    """By module: what moved."""
    windows = ["bartlett", "blackman", "gaussian", "hamming", "hann", "kaiser", "triang"]
    rules = {"simps": "simpson", "trapz": "trapezoid", "cumtrapz": "cumulative_trapezoid"}
    measures = {
        "compare_ssim": "structural_similarity",
        "compare_psnr": "peak_signal_noise_ratio",
        "compare_mse": "mean_squared_error",
        "compare_nrmse": "normalized_root_mse",
    }
    return {
        "scipy.misc": names_of_misc(),
        "scipy.ndimage": {"imread": imread},
        "scipy.signal": {name: lazily("scipy.signal.windows", name) for name in windows},
        "scipy.integrate": {old: lazily("scipy.integrate", new) for old, new in rules.items()},
        "skimage.measure": {old: lazily("skimage.metrics", new) for old, new in measures.items()},
    }


def bind_misc(scipy: ModuleType) -> Callable[[], object]:
    """Lets ``import scipy`` give `scipy.misc`, as it did; returns the function that undoes it."""
    if "misc" in vars(scipy):
        return lambda: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the program's author cannot hear it
        misc = importlib.import_module("scipy.misc")
    vars(scipy)["misc"] = misc
    return lambda: vars(scipy).pop("misc", None)
