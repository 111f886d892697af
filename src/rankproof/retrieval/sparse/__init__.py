"""Sparse indexes: find the best passages of a query by their words."""
