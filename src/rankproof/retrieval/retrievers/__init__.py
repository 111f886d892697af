"""Whole engines: a question in, the best passages out, however they find them."""
