"""A local page to read a golden set and to correct it."""
