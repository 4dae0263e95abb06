from anabranch.contrib.crf_cells import (
    CrfDecodeBackwardRnnCell as CrfDecodeBackwardRnnCell,
    CrfDecodeForwardRnnCell as CrfDecodeForwardRnnCell,
    CrfForwardRnnCell as CrfForwardRnnCell,
)
from anabranch.contrib.crf_functions import (
    crf_binary_score as crf_binary_score,
    crf_decode as crf_decode,
    crf_forward as crf_forward,
    crf_log_likelihood as crf_log_likelihood,
    crf_log_norm as crf_log_norm,
    crf_multitag_sequence_score as crf_multitag_sequence_score,
    crf_sequence_score as crf_sequence_score,
    crf_unary_score as crf_unary_score,
    viterbi_decode as viterbi_decode,
)
