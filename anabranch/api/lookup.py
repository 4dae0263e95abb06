"""`tf.lookup`."""

from __future__ import annotations

from anabranch.api import lookup_experimental as experimental
from anabranch.frontend.lookup import (
    StaticHashTable,
    StaticVocabularyTable,
)
from anabranch.frontend.lookup_tables import (
    KeyValueTensorInitializer,
    TextFileIndex,
    TextFileInitializer,
)

__all__ = [
    "KeyValueTensorInitializer",
    "StaticHashTable",
    "StaticVocabularyTable",
    "TextFileIndex",
    "TextFileInitializer",
    "experimental",
]
