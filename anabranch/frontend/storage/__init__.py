"""What is read and written: examples, readers, summaries, graphs."""
