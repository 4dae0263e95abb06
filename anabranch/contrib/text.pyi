from anabranch.contrib.skip_grams import (
    skip_gram_sample as skip_gram_sample,
    skip_gram_sample_with_text_vocab as skip_gram_sample_with_text_vocab,
)
