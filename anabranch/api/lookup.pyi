from anabranch.api import lookup_experimental
from anabranch.frontend.resources.lookup import (
    StaticHashTable as StaticHashTable,
    StaticVocabularyTable as StaticVocabularyTable,
)
from anabranch.frontend.resources.lookup_tables import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
    TextFileIndex as TextFileIndex,
    TextFileInitializer as TextFileInitializer,
)

experimental = lookup_experimental
