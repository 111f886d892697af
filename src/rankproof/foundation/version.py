"""The version, readable without importing anything else."""

__version__ = "0.1.0"
"""The version of the package.

>>> rp.__version__.count(".")
2
"""
