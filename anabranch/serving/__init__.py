"""Models as others serve them: SavedModels, written and read."""
