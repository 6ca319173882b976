"""Joules of a window, watts without load, and whether they were steady. Pure."""
