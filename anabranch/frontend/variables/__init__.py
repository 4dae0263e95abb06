"""Variables: making, sharing, cutting, initializing and updating them."""
