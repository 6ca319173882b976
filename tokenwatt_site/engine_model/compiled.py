"""Loops over integers, compiled when they are first called: numba takes half a second to load."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Compiled(Generic[P, R]):
    """A function that runs as machine code; `py_func` is the same in plain Python."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.py_func = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._machine(*args, **kwargs)

    @cached_property
    def _machine(self) -> Callable[P, R]:
        import numba  # noqa: PLC0415 - see above

        try:
            machine: Callable[P, R] = numba.njit(cache=True)(self.py_func)
        except RuntimeError:  # nowhere to keep it: compiled in every process, in some seconds
            machine = numba.njit(cache=False)(self.py_func)
        return machine
