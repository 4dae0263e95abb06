"""Operations on what is stored: files, records, examples, checkpoints, summaries."""
