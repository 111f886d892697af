"""Texts → the best passages of each query, by their words."""
