"""Fuzzers: run for long from the command line, and for seconds as tests."""
