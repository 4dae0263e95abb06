"""What SciPy, scikit-learn, PyYAML and pandas have removed, in the process that runs a program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.tools import moved_modules, old_names, old_scipy, tensorflow_alias

RNG = np.random.default_rng(1)
PICTURE = RNG.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)


@pytest.fixture
def restored() -> Iterator[None]:
    undo = old_names.restore(quiet=True)
    yield
    undo()


def test_pictures_are_written_and_read(tmp_path: Path, restored: None) -> None:
    misc = importlib.import_module("scipy.misc")
    path = str(tmp_path / "picture.png")
    misc.imsave(path, PICTURE)
    np.testing.assert_array_equal(misc.imread(path), PICTURE)
    np.testing.assert_array_equal(misc.imread(path, mode="RGBA")[..., 3], 255)
    grey = misc.imread(path, flatten=True)
    assert grey.dtype == np.float32
    np.testing.assert_allclose(grey, PICTURE @ [0.299, 0.587, 0.114], atol=1)
    assert importlib.import_module("scipy.ndimage").imread is misc.imread


def test_pictures_get_another_size(restored: None) -> None:
    misc = importlib.import_module("scipy.misc")
    assert misc.imresize(PICTURE, (3, 5)).shape == (3, 5, 3)
    assert misc.imresize(PICTURE, 0.5).shape == misc.imresize(PICTURE, 50).shape == (3, 4, 3)
    np.testing.assert_array_equal(misc.imresize(PICTURE, 2.0, "nearest"), PICTURE.repeat(2, 0).repeat(2, 1))
    assert misc.imresize(PICTURE[..., 0] / 255, (3, 4), mode="F").dtype == np.float32
    np.testing.assert_array_equal(misc.imrotate(PICTURE[:6, :6], 90, "nearest"), np.rot90(PICTURE[:6, :6]))


def test_numbers_become_bytes() -> None:
    numbers = np.array([[-1.0, 0.0], [0.5, 1.0]])
    assert old_scipy.bytescale(numbers).tolist() == [[0, 128], [191, 255]]
    assert old_scipy.bytescale(numbers, cmin=0.0, cmax=1.0).tolist() == [[0, 0], [128, 255]]
    assert old_scipy.bytescale(np.ones([1, 2])).tolist() == [[0, 0]]
    assert old_scipy.bytescale(PICTURE) is PICTURE
    with pytest.raises(ValueError, match="must be bytes"):
        old_scipy.bytescale(numbers, high=256)
    with pytest.raises(ValueError, match="`cmax` should be larger"):
        old_scipy.bytescale(numbers, cmin=1.0, cmax=0.0)


def test_pictures_of_arrays() -> None:
    for moved in (PICTURE, np.moveaxis(PICTURE, 2, 0), np.moveaxis(PICTURE, 2, 1)):
        np.testing.assert_array_equal(np.array(old_scipy.toimage(moved)), PICTURE)
    grey = PICTURE[..., 0]
    assert np.array(old_scipy.toimage(grey, mode="P").convert("L")).tolist() == grey.tolist()
    assert np.array(old_scipy.toimage(grey, mode="I")).max() == 255
    assert old_scipy.toimage(grey, high=100, mode="1").mode == "1"
    assert old_scipy.toimage(grey, pal=[[0, 0, 255]] * 256).convert("RGB").getpixel((0, 0)) == (0, 0, 255)
    for wrong, mode in ((np.zeros([2, 2, 2]), None), (grey * 1j, None), (grey, "RGB"), (PICTURE, "RGBA")):
        with pytest.raises(ValueError, match=r"mode|shape|complex"):
            old_scipy.toimage(wrong, mode=mode)
    with pytest.raises(ValueError, match="Channel axis"):
        old_scipy.toimage(PICTURE, channel_axis=0)


def test_summaries_of_version_1(restored: None) -> None:
    tensorboard = pytest.importorskip("tensorboard")
    assert callable(tensorboard.summary.custom_scalar)
    tensorflow_alias.install()
    layout = importlib.import_module("tensorboard.plugins.custom_scalar.layout_pb2").Layout(
        category=[{"title": "losses"}]
    )
    try:
        summary = tensorboard.summary.custom_scalar_pb(layout)
    finally:
        tensorflow_alias.uninstall()
    assert [value.metadata.plugin_data.plugin_name for value in summary.value] == ["custom_scalars"]


def test_functions_that_moved(restored: None) -> None:
    scipy = importlib.import_module("scipy")
    assert scipy.misc.comb(4, 2) == 6
    assert scipy.misc.logsumexp([0.0, 0.0]) == pytest.approx(np.log(2))
    assert scipy.zeros(2).tolist() == [0, 0]
    assert importlib.import_module("scipy.signal").gaussian(3, 1.0)[1] == 1
    assert importlib.import_module("scipy.integrate").simps([1.0, 1.0, 1.0]) == 2


def test_modules_that_moved(restored: None) -> None:
    split = importlib.import_module("sklearn.cross_validation").train_test_split
    assert len(split([1, 2, 3, 4], test_size=2, random_state=0)[0]) == 2
    assert importlib.import_module("sklearn.externals.joblib").dump
    validation = importlib.import_module("sklearn.cross_validation")
    assert "KFold" in validation.__all__
    assert "KFold" in dir(validation)


def test_what_is_restored_goes_again() -> None:
    undo = old_names.restore(quiet=True)
    importlib.import_module("sklearn.grid_search")
    undo()
    assert "sklearn.grid_search" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sklearn.grid_search")


def test_modules_below_what_is_no_package_any_more(restored: None) -> None:
    arpack = importlib.import_module("scipy.sparse.linalg.eigen.arpack")
    linalg = importlib.import_module("scipy.sparse.linalg")
    assert arpack.eigsh is linalg.eigsh
    assert issubclass(arpack.ArpackNoConvergence, arpack.ArpackError)
    assert importlib.import_module("sklearn.metrics.ranking").auc([0.0, 1.0], [0.0, 1.0]) == 0.5


def test_a_package_is_a_module_again() -> None:
    undo = old_names.restore(quiet=True)
    importlib.import_module("scipy.sparse.linalg.eigen.arpack")
    undo()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("scipy.sparse.linalg.eigen.arpack")


def test_a_module_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    undo = moved_modules.restore(told.append)
    monkeypatch.setitem(moved_modules.MOVED, "formerly", "json")
    monkeypatch.setitem(moved_modules.MOVED, "no_more", "nowhere_to_be_found")
    assert importlib.import_module("formerly").loads("[1]") == [1]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_more")
    undo()
    assert told == ["formerly"]
    assert "formerly" not in sys.modules


def test_yaml_without_a_loader(restored: None) -> None:
    yaml = importlib.import_module("yaml")
    assert yaml.load("{a: [1, 2]}") == {"a": [1, 2]}
    assert yaml.load("a: 1", Loader=yaml.BaseLoader) == {"a": "1"}
    with pytest.raises(yaml.constructor.ConstructorError):
        yaml.load("!!python/object/apply:os.getcwd []")


def test_methods_of_pandas(restored: None) -> None:
    frame: Any = importlib.import_module("pandas").DataFrame({"a": [1, 2], "b": [3, 4]})
    assert frame.as_matrix().tolist() == frame.get_values().tolist() == [[1, 3], [2, 4]]
    assert frame.as_matrix(["b"]).tolist() == [[3], [4]]
    assert frame["a"].get_values().tolist() == [1, 2]


def test_replacing_by_a_regular_expression_in_pandas(restored: None) -> None:
    texts: Any = importlib.import_module("pandas").Series(["a.c", "abc"]).str
    assert texts.replace(".", "+").tolist() == ["a+c", "abc"]
    assert texts.replace("a.c", "+", regex=False).tolist() == ["+", "abc"]
    assert texts.replace("^a.", lambda found: found.group().upper()).tolist() == ["A.c", "ABc"]
    assert texts.replace("a.c", "+").tolist() == ["+", "+"]


def test_reading_pictures_needs_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        old_scipy.imread("x.png")


def test_sizes_of_texts(restored: None) -> None:
    fonts, draw = (importlib.import_module(f"PIL.{name}") for name in ("ImageFont", "ImageDraw"))
    pictures = importlib.import_module("PIL.Image")
    assert pictures.LINEAR == pictures.BILINEAR
    width, height = fonts.load_default().getsize("aa")
    assert width > 0 < height
    drawing = draw.Draw(pictures.new("L", (40, 20)))
    assert drawing.textsize("aa", fonts.load_default())[0] == width < drawing.textsize("aaa", fonts.load_default())[0]


def test_names_of_scikit_learn(restored: None) -> None:
    manifold = importlib.import_module("sklearn.manifold")
    found = manifold.TSNE(n_components=2, n_iter=300)
    assert found.max_iter == 300
    assert found.get_params()["max_iter"] == 300
    fills = importlib.import_module("sklearn.preprocessing").Imputer(strategy="mean")
    assert fills.fit_transform([[1.0], [np.nan], [3.0]]).ravel().tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="transpose"):
        importlib.import_module("sklearn.preprocessing").Imputer(axis=1)


def test_rows_and_cells_of_pandas(restored: None) -> None:
    frame: Any = importlib.import_module("pandas").DataFrame({"a": [1, 2], "b": [3, 4]}, index=["x", "y"])
    assert frame.ix["y", "b"] == frame.ix[1, 1] == frame.get_value("y", "b") == 4
    frame.ix[0, "a"] = 7
    frame.set_value("y", "a", 8)
    assert frame["a"].tolist() == [7, 8]
    assert frame.ix[1].tolist() == frame.ix["y"].tolist() == [8, 4]
