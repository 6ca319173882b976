"""Bytes that engine steps move, modelled and measured, and what limits them. Pure."""
