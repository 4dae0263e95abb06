from anabranch.contrib.vocabularies import (
    ByteProcessor as ByteProcessor,
    CategoricalProcessor as CategoricalProcessor,
    CategoricalVocabulary as CategoricalVocabulary,
    VocabularyProcessor as VocabularyProcessor,
    tokenizer as tokenizer,
)
