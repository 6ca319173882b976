"""Asks the questions of a task of the engine that was loaded: harness, asking, comparing."""
