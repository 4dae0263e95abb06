"""Trainings that are disturbed for real, at random, and whose results are looked at. See `__main__`."""
