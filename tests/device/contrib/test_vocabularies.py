"""`tf.contrib.learn.preprocessing`: which numbers words and categories get, and what is written and read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

preprocessing = tf.contrib.learn.preprocessing


def rows(processed: Any) -> list[list[int]]:
    return [row.tolist() for row in processed]


def test_words_are_found_as_tensorflow_finds_them() -> None:
    texts = ["It's a well-known NASA, NASAfile, CamelCase!", "", "  100% naïve_x  "]
    assert list(preprocessing.tokenizer(texts)) == [
        ["It's", "a", "well-known", "NASA", "NAS", "Afile", "Camel", "Case"],
        [],
        ["100", "naïve_x"],
    ]


def test_documents_become_numbers_and_back() -> None:
    processor = preprocessing.VocabularyProcessor(4)
    assert rows(processor.fit_transform(["a b", "a c d e f", ""])) == [[1, 2, 0, 0], [1, 3, 4, 5], [0, 0, 0, 0]]
    assert len(processor.vocabulary_) == 7
    (row,) = processor.transform(["c zz a"])
    assert (row.dtype, row.tolist()) == (np.int64, [3, 0, 1, 0])
    assert list(processor.reverse([row])) == ["c <UNK> a <UNK>"]


def test_rare_words_are_unknown_and_others_numbered_by_frequency() -> None:
    processor = preprocessing.VocabularyProcessor(3, min_frequency=1)
    assert rows(processor.fit_transform(["x y y", "z z y", "b b once"])) == [[0, 1, 1], [3, 3, 1], [2, 2, 0]]
    vocabulary = preprocessing.CategoricalVocabulary("?")
    for word, count in {"a": 5, "b": 3, "c": 1, "d": 3}.items():
        vocabulary.add(word, count)
    vocabulary.add("?")
    vocabulary.trim(1, 5)
    assert [vocabulary.reverse(i) for i in range(len(vocabulary))] == ["?", "b", "d"]
    assert vocabulary.get("a") == 3  # it is not frozen
    with pytest.raises(ValueError, match="support_reverse"):
        preprocessing.CategoricalVocabulary(support_reverse=False).reverse(0)


def letters(texts: Any) -> Any:
    return (list(text) for text in texts)


def test_a_processor_is_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "vocab")
    processor = preprocessing.VocabularyProcessor(3, 1).fit(["ü b b", "ü c"])
    processor.save(path)
    read = preprocessing.VocabularyProcessor.restore(path)
    assert rows(read.transform(["b ü c"])) == rows(processor.transform(["b ü c"])) == [[1, 2, 0]]
    assert (read.max_document_length, read.min_frequency) == (3, 1)
    read.vocabulary_.freeze(False)
    read.fit(["ü d d"])
    assert rows(read.transform(["d ü b"])) == [[3, 1, 2]]
    preprocessing.VocabularyProcessor(3, tokenizer_fn=letters).fit(["ab"]).save(path)
    with pytest.raises(ValueError, match="tokenizer of its own, 'letters'"):
        preprocessing.VocabularyProcessor.restore(path)
    assert rows(preprocessing.VocabularyProcessor.restore(path, letters).transform(["bca"])) == [[2, 0, 1]]


class Trap:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('the pickle ran')",))


def test_files_that_are_no_vocabularies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab"
    restore = preprocessing.VocabularyProcessor.restore
    with pytest.raises(tf.errors.NotFoundError):
        restore(str(path))
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="is a pickle, as TensorFlow writes vocabularies"):
        restore(str(path))
    for content in (b"", b"{", b"\xff", b"[1]", b"[" * 100_000, pickle.dumps(Trap(), protocol=0)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no vocabulary that VocabularyProcessor.save wrote"):
            restore(str(path))
    preprocessing.VocabularyProcessor(3).fit(["a b"]).save(str(path))
    good = json.loads(path.read_text())
    for key, value, why in (
        ("max_document_length", -1, "must be a number"),
        ("max_document_length", 2**40, "must be a number"),
        ("vocabulary", None, "lacks its unknown token"),
        ("vocabulary", {**good["vocabulary"], "counts": [1]}, "2 categories and 1 counts"),
        ("vocabulary", {**good["vocabulary"], "categories": ["a", ["b"]]}, "texts and numbers"),
        ("vocabulary", {**good["vocabulary"], "categories": ["a", "a"]}, "there twice"),
    ):
        path.write_text(json.dumps({**good, key: value}))
        with pytest.raises(ValueError, match=why):
            restore(str(path))


def test_bytes_and_columns() -> None:
    processor = preprocessing.ByteProcessor(4)
    made = list(processor.fit_transform(["abcde", "ü", b"\x00a"]))
    assert rows(made) == [[97, 98, 99, 100], [195, 188, 0, 0], [0, 97, 0, 0]]
    assert made[0].dtype == np.uint8
    assert list(processor.reverse([*made, np.array([195], np.uint8)])) == ["abcd", "ü", "\x00a", ""]
    table = [["a", 1], ["b", float("nan")], ["a", 2]]
    assert rows(preprocessing.CategoricalProcessor().fit_transform(table)) == [[1, 1], [2, 0], [1, 2]]
    assert rows(preprocessing.CategoricalProcessor(share=True).fit_transform([["a", "b"], ["b", "c"]])) == [
        [1, 2],
        [2, 3],
    ]


def test_modes_are_those_of_estimators() -> None:
    modes, estimators = tf.contrib.learn.ModeKeys, tf.estimator.ModeKeys
    assert (modes.TRAIN, modes.EVAL, modes.INFER) == (estimators.TRAIN, estimators.EVAL, estimators.PREDICT)
