"""The small data sets of `tf.contrib.learn.datasets`: two that came with TensorFlow, and two that are computed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.learn.csv_tables import TableOfExamples, load_csv_with_header
from anabranch.contrib.mnist_data import load_mnist

#: a table of examples, or several
DataSet: TypeAlias = Any


def load_iris(data_path: str | None = None) -> TableOfExamples:
    """150 flowers: four lengths of each, and which of three kinds it is.

    Args:
        data_path: a file as `load_csv_with_header` reads it; None: scikit-learn's copy of the data.

    Raises:
        ImportError: there is no path, and scikit-learn is not installed.
    """
    if data_path is not None:
        return load_csv_with_header(data_path, np.int64, np.float64)
    try:
        found = importlib.import_module("sklearn.datasets").load_iris()
    except ImportError as error:
        raise ImportError(
            "load_iris() reads scikit-learn's copy of the data, which is not installed: pip install scikit-learn, or "
            "give the path of a file: load_iris('iris.csv')"
        ) from error
    return TableOfExamples(np.asarray(found.data, np.float64), np.asarray(found.target, np.int64))


def load_boston(data_path: str | None = None) -> TableOfExamples:
    """506 districts: thirteen numbers of each, and the price of a house.

    Args:
        data_path: a file as `load_csv_with_header` reads it.

    Raises:
        FileNotFoundError: there is no path: scikit-learn, too, has the data no more.
    """
    if data_path is None:
        raise FileNotFoundError(
            "the Boston data do not come with anabranch: give load_boston the path of boston_house_prices.csv, which "
            "is in TensorFlow 1's sources (tensorflow/contrib/learn/python/learn/datasets/data)"
        )
    return load_csv_with_header(data_path, np.float64, np.float64)


# ---------------------------------------------------------------------- computed ones
def circles(
    n_samples: int = 100,
    noise: float | None = None,
    seed: int | None = None,
    factor: float = 0.8,
    n_classes: int = 2,
    *_: PassedOn,
    **__: PassedOn,
) -> TableOfExamples:
    """Points on circles around the origin, a class for each circle, in random order.

    Args:
        n_samples: how many points.
        noise: the standard deviation of what is added to them; None: nothing.
        seed: of the random numbers; None: others each time.
        factor: how much smaller each circle is than the one before.
        n_classes: how many circles.
    """
    random = np.random.RandomState(seed)
    each, extra = divmod(n_samples, n_classes)
    angles = np.linspace(0, 2 * np.pi, each)
    radii = factor ** np.arange(n_classes)
    further = [random.rand(extra) * 2 * np.pi for _ in range(2)]
    x = np.concatenate([*(radius * np.cos(angles) for radius in radii), np.cos(further[0])])
    y = np.concatenate([*(radius * np.sin(angles) for radius in radii), np.sin(further[1])])
    return _shuffled(x, y, _labels(n_classes, each, extra), noise, random)


def spirals(
    n_samples: int = 100,
    noise: float | None = None,
    seed: int | None = None,
    mode: str = "archimedes",
    n_loops: int = 2,
    *_: PassedOn,
    exp_scale: float = 0.1,
    **__: PassedOn,
) -> TableOfExamples:
    """Points on two spirals from the origin, in random order.

    Args:
        n_samples, noise, seed: as for `circles`.
        mode: how the radius grows with the angle: "archimedes": as the angle; "bernoulli": exponentially, by
            `exp_scale`; "fermat": as its square root.
        n_loops: how often a spiral goes round.

    Raises:
        ValueError: there is no such mode.
    """
    growth: dict[str, Callable[[Any], Any]] = {
        "archimedes": lambda angle: angle,
        "bernoulli": lambda angle: np.exp(exp_scale * angle),
        "fermat": np.sqrt,
    }
    if mode not in growth:
        raise ValueError(f"Cannot generate spiral with mode {mode}: use one of {sorted(growth)}")
    random = np.random.RandomState(seed)
    each, extra = divmod(n_samples, 2)
    angles = np.linspace(0, 2 * n_loops * np.pi, each)
    parts = [_spiral(growth[mode], angles, offset) for offset in (0.0, np.pi)]
    if extra:
        parts.append(_spiral(growth[mode], random.rand(extra) * 2 * np.pi, 0.0))
    x, y = (np.concatenate(values) for values in zip(*parts, strict=True))
    return _shuffled(x, y, _labels(2, each, extra), noise, random)


def _spiral(radius: Callable[[Any], Any], angles: np.ndarray[Any, Any], offset: float) -> tuple[Any, Any]:
    x, y = radius(angles) * np.cos(angles + offset), radius(angles) * np.sin(angles + offset)
    return x / np.max(np.abs(x)), y / np.max(np.abs(y))


def _labels(classes: int, each: int, extra: int) -> np.ndarray[Any, Any]:
    labels: np.ndarray[Any, Any] = np.repeat(np.arange(classes, dtype=np.float64), each)
    return np.concatenate([labels, np.zeros(extra)])


def _shuffled(
    x: PassedOn, y: PassedOn, labels: np.ndarray[Any, Any], noise: float | None, random: np.random.RandomState
) -> TableOfExamples:
    points = np.stack([x, y], 1)
    order = random.permutation(range(len(points)))
    if noise is not None:
        points += random.normal(scale=noise, size=points.shape)
    return TableOfExamples(points[order], labels[order])


DATASETS: Final[dict[str, Callable[[], Any]]] = {"iris": load_iris, "boston": load_boston, "mnist": load_mnist}
SYNTHETIC: Final[dict[str, Callable[..., TableOfExamples]]] = {"circles": circles, "spirals": spirals}


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> DataSet:
    """A data set by name: "iris", "boston" or "mnist".

    Args:
        size, test_with_fake_data: not used; they are of "dbpedia", which is not here.

    Raises:
        ValueError: there is no such data set.
    """
    if name not in DATASETS:
        raise ValueError(f"Name of dataset is not found: {name}; there are {', '.join(sorted(DATASETS))}")
    return DATASETS[name]()


def make_dataset(
    name: str,
    n_samples: int = 100,
    noise: float | None = None,
    seed: int | None = 42,
    *further: PassedOn,
    **named: PassedOn,
) -> TableOfExamples:
    """A computed data set by name: "circles" or "spirals", whose arguments are the others.

    Raises:
        ValueError: there is no such data set.
    """
    if name not in SYNTHETIC:
        raise ValueError(f"Synthetic dataset not found or not implemented: {name}; there are circles and spirals")
    return SYNTHETIC[name](n_samples, noise, seed, *further, **named)
