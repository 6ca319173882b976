"""Reproducible reports of LLM serving: measure, sign, verify, recompute, publish."""

__all__ = ["__version__"]

__version__ = "0.1.0"
