from anabranch.frontend.signal.cosine_transforms import dct as dct, idct as idct
from anabranch.frontend.signal.frames import frame as frame, overlap_and_add as overlap_and_add
from anabranch.frontend.signal.mel import (
    linear_to_mel_weight_matrix as linear_to_mel_weight_matrix,
    mfccs_from_log_mel_spectrograms as mfccs_from_log_mel_spectrograms,
)
from anabranch.frontend.signal.short_time import (
    inverse_stft as inverse_stft,
    inverse_stft_window_fn as inverse_stft_window_fn,
    stft as stft,
)
from anabranch.frontend.signal.windows import hamming_window as hamming_window, hann_window as hann_window
