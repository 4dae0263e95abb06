"""`tf.contrib.learn.preprocessing`: documents and categories as numbers, by a vocabulary that grows while it is fitted.

Saved processors are JSON. TensorFlow pickles them, and a pickle runs code when it is read: such files are refused
(docs/differences.md).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: capitals that stand alone, a capitalised word before another, words with hyphens and apostrophes
_TOKEN: Final = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)
_FORMAT: Final = "vocabulary processor"
_VERSION: Final = 1
_MOST_BYTES: Final = 1 << 30
_PICKLE: Final = b"\x80"

Category: TypeAlias = str | int | float | bool
Tokenizer: TypeAlias = Callable[[Iterable[str]], Iterable[Iterable[Category]]]


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text.

    Example:
        >>> list(tf.contrib.learn.preprocessing.tokenizer(["It's well-known, isn't it?"]))
        [["It's", 'well-known', "isn't", 'it']]
    """
    for text in iterator:
        yield _TOKEN.findall(text)


class CategoricalVocabulary:
    """Numbers for categories. Number 0 is that of all that are unknown.

    Args:
        unknown_token: what stands for them.
        support_reverse: whether `reverse` is to give categories of numbers.

    Example:
        >>> vocabulary = tf.contrib.learn.preprocessing.CategoricalVocabulary()
        >>> [vocabulary.get(word) for word in ["a", "b", "a"]]
        [1, 2, 1]
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._mapping: dict[Category, int] = {unknown_token: 0}
        self._reverse_mapping: list[Category] = [unknown_token]
        self._freq: dict[Category, int] = {}
        self._freeze = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Lets new categories be unknown from now on; with False, they get numbers again."""
        self._freeze = freeze

    def get(self, category: Category) -> int:
        """The number of a category, which a new one gets unless the vocabulary is frozen."""
        number = self._mapping.get(category)
        if number is None:
            if self._freeze:
                return 0
            number = self._append(category)
        return number

    def _append(self, category: Category) -> int:
        number = self._mapping[category] = len(self._mapping)
        self._reverse_mapping.append(category)
        return number

    def add(self, category: Category, count: int = 1) -> None:
        """Counts a category, which a new one gets a number for. The unknown one is not counted."""
        if self.get(category) > 0:
            self._freq[category] = self._freq.get(category, 0) + count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Forgets categories that are rare, or too frequent, and numbers the others by falling frequency.

        Args:
            min_frequency: those that were counted no more often go.
            max_frequency: those that were counted as often go; not positive: none.
        """
        by_name = sorted(self._freq.items(), key=lambda item: (isinstance(item[0], str), item[0]))
        kept = {
            category: count
            for category, count in sorted(by_name, key=lambda item: item[1], reverse=True)
            if count > min_frequency and not 0 < max_frequency <= count
        }
        self._mapping, self._reverse_mapping = {self._unknown_token: 0}, [self._unknown_token]
        self._freq = kept
        for category in kept:
            self._append(category)

    def reverse(self, class_id: int) -> Category:
        """The category of a number.

        Raises:
            ValueError: the vocabulary was made without `support_reverse`.
            IndexError: there is no such number.
        """
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]

    def as_message(self) -> dict[str, Any]:
        """The vocabulary as what JSON can hold."""
        return {
            "unknown": self._unknown_token,
            "support_reverse": self._support_reverse,
            "frozen": self._freeze,
            "categories": self._reverse_mapping[1:],
            "counts": [self._freq.get(category, 0) for category in self._reverse_mapping[1:]],
        }

    @classmethod
    def from_message(cls, message: dict[str, PassedOn]) -> Self:
        """The vocabulary that `as_message` gave.

        Raises:
            ValueError: it is none.
        """
        unknown, categories, counts = message.get("unknown"), message.get("categories"), message.get("counts")
        if not isinstance(unknown, str) or not isinstance(categories, list) or not isinstance(counts, list):
            raise ValueError("the vocabulary lacks its unknown token, its categories or their counts")
        if len(categories) != len(counts) or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"there are {len(categories)} categories and {len(counts)} counts, which must be numbers")
        if not all(isinstance(category, str | int | float) for category in categories):
            raise ValueError("categories are texts and numbers")
        made = cls(unknown, message.get("support_reverse") is not False)
        for category, count in zip(categories, counts, strict=True):
            if category in made._mapping:
                raise ValueError(f"category {category!r} is there twice")
            made._append(category)
            if count:
                made._freq[category] = count
        made.freeze(message.get("frozen") is True)
        return made


class VocabularyProcessor:
    """Texts as rows of numbers of their words: 0 for unknown words, and after the last one.

    Args:
        max_document_length: numbers in a row; further words are left out.
        min_frequency: words that occur no more often are unknown.
        vocabulary: default: an empty one.
        tokenizer_fn: gives the words of each of several texts; default: `tokenizer`.

    Example:
        >>> processor = tf.contrib.learn.preprocessing.VocabularyProcessor(4)
        >>> rows = [row.tolist() for row in processor.fit_transform(["a cat", "a big cat is big"])]
        >>> rows
        [[1, 2, 0, 0], [1, 3, 2, 4]]
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Tokenizer | None = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = CategoricalVocabulary() if vocabulary is None else vocabulary
        self._tokenizer: Tokenizer = tokenizer if tokenizer_fn is None else tokenizer_fn

    def fit(self, raw_documents: Iterable[str], unused_y: PassedOn = None) -> Self:
        """Learns the words of texts, and freezes the vocabulary; returns this processor."""
        del unused_y
        for tokens in self._tokenizer(raw_documents):
            for token in tokens:
                self.vocabulary_.add(token)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(
        self, raw_documents: Iterable[str], unused_y: PassedOn = None
    ) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """`fit` and then `transform`: `raw_documents` are gone through twice."""
        return self.fit(raw_documents, unused_y).transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """Rows of int64, one for each text."""
        for tokens in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for place, token in zip(range(self.max_document_length), tokens, strict=False):
                row[place] = self.vocabulary_.get(token)
            yield row

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """The texts of rows, their words with a blank in between."""
        for row in documents:
            yield " ".join(str(self.vocabulary_.reverse(int(number))) for number in row)

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Writes the processor, as JSON.

        Raises:
            TypeError: a category is neither a text nor a number.
        """
        function = None if self._tokenizer is tokenizer else getattr(self._tokenizer, "__qualname__", "another")
        message = {
            "format": _FORMAT,
            "version": _VERSION,
            "max_document_length": int(self.max_document_length),
            "min_frequency": int(self.min_frequency),
            "tokenizer": function,
            "vocabulary": self.vocabulary_.as_message(),
        }
        text = json.dumps(message, ensure_ascii=False)
        with tf.gfile.GFile(os.fsdecode(filename), "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def restore(cls, filename: str | os.PathLike[str], tokenizer_fn: Tokenizer | None = None) -> Self:
        """The processor that `save` wrote.

        Args:
            filename: the file.
            tokenizer_fn: the function that the processor had, if it had one of its own: it is not in the file.

        Raises:
            NotFoundError: there is no such file.
            ValueError: it is none that `save` wrote, one that TensorFlow pickled, say; or the processor had a
                tokenizer of its own, which is not given.
        """
        name = os.fsdecode(filename)
        message = _read(name)
        length, frequency = _number(name, message, "max_document_length"), _number(name, message, "min_frequency")
        if message.get("tokenizer") is not None and tokenizer_fn is None:
            raise ValueError(
                f"{name!r}: the processor had a tokenizer of its own, {message['tokenizer']!r}; hand it on: "
                "restore(filename, tokenizer_fn=...)"
            )
        try:
            vocabulary = CategoricalVocabulary.from_message(message.get("vocabulary") or {})
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from error
        return cls(length, frequency, vocabulary, tokenizer_fn)


def _number(name: str, message: dict[str, Any], key: str) -> int:
    value = message.get(key)
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"{name!r}: {key} must be a number below 2**31, got {value!r}")
    return value


def _read(name: str) -> dict[str, Any]:
    size = tf.gfile.Stat(name).length
    if size > _MOST_BYTES:
        raise ValueError(f"{name!r} has {size} bytes, more than the {_MOST_BYTES} that a vocabulary may have")
    with tf.gfile.GFile(name, "rb") as file:
        content = file.read()
    if content.startswith(_PICKLE):
        raise ValueError(
            f"{name!r} is a pickle, as TensorFlow writes vocabularies: reading it would run code that is in it. Fit a "
            "processor to the same documents and save that"
        )
    try:
        message = json.loads(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name!r} is no vocabulary that VocabularyProcessor.save wrote: {error}") from error
    if not isinstance(message, dict) or message.get("format") != _FORMAT or message.get("version") != _VERSION:
        raise ValueError(f"{name!r} is no vocabulary that VocabularyProcessor.save wrote (version {_VERSION})")
    return message


class ByteProcessor:
    """Texts as rows of their bytes, with zeros at the end.

    Args:
        max_document_length: bytes in a row; further ones are left out.
    """

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: PassedOn) -> Self:
        """Nothing is learned; returns this processor."""
        del x
        return self

    def fit_transform(
        self, x: Iterable[str | bytes], y: PassedOn = None
    ) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        """The same as `transform`."""
        del y
        return self.transform(x)

    def transform(self, x: Iterable[str | bytes]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        """Rows of uint8, one for each text."""
        for document in x:
            content = document.encode() if isinstance(document, str) else document
            row = np.zeros(self.max_document_length, np.uint8)
            part = np.frombuffer(content, np.uint8)[: self.max_document_length]
            row[: len(part)] = part
            yield row

    def reverse(self, x: Iterable[np.ndarray[Any, Any]]) -> Iterator[str]:
        """The texts of rows; "" for one that is no UTF-8, since it was cut off, say."""
        for row in x:
            try:
                yield np.trim_zeros(np.asarray(row).astype(np.uint8), "b").tobytes().decode()
            except UnicodeDecodeError:
                yield ""


class CategoricalProcessor:
    """Rows of categories as rows of numbers, by a vocabulary for each column.

    Args:
        min_frequency: categories that occur no more often are unknown.
        share: whether all columns have one vocabulary.
        vocabularies: one for each column, or one alone; default: empty ones.
    """

    def __init__(
        self,
        min_frequency: int = 0,
        share: bool = False,
        vocabularies: Sequence[CategoricalVocabulary] | CategoricalVocabulary | None = None,
    ) -> None:
        self.min_frequency = min_frequency
        self.share = share
        self.vocabularies_ = vocabularies

    def freeze(self, freeze: bool = True) -> None:
        """Lets new categories be unknown from now on."""
        for vocabulary in self._each(0):
            vocabulary.freeze(freeze)

    def fit(self, x: Iterable[Sequence[Category]], unused_y: PassedOn = None) -> Self:
        """Learns the categories of rows, and freezes the vocabularies; returns this processor."""
        del unused_y
        for row in x:
            vocabularies = self._each(len(row))
            for place, value in enumerate(row):
                if not (isinstance(value, float) and math.isnan(value)):
                    vocabularies[0 if self.share else place].add(value)
        if self.min_frequency > 0:
            for vocabulary in self._each(0):
                vocabulary.trim(self.min_frequency)
        self.freeze()
        return self

    def fit_transform(
        self, x: Iterable[Sequence[Category]], unused_y: PassedOn = None
    ) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """`fit` and then `transform`: `x` is gone through twice."""
        return self.fit(x, unused_y).transform(x)

    def transform(self, x: Iterable[Sequence[Category]]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """Rows of int64."""
        for row in x:
            vocabularies = self._each(len(row))
            numbers = [vocabularies[0 if self.share else place].get(value) for place, value in enumerate(row)]
            yield np.array(numbers, np.int64)

    def _each(self, columns: int) -> Sequence[CategoricalVocabulary]:
        if isinstance(self.vocabularies_, CategoricalVocabulary):
            return [self.vocabularies_] * max(columns, 1)
        if self.vocabularies_ is None:
            self.vocabularies_ = [CategoricalVocabulary() for _ in range(1 if self.share else columns)]
        return self.vocabularies_
