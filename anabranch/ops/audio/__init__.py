"""Operations on sound: the format WAV, spectra over time, and what speech recognition makes of these."""
