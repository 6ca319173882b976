"""NVML through the package nvidia-ml-py, the only user of that library: calls and their errors."""

from __future__ import annotations

import importlib
from typing import Any

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EnvironmentProblem


class NvmlUnavailable(EnvironmentProblem):
    """NVML cannot be used here; its text is the reason that is published."""


class Nvml:
    """An open library; `module` is the binding."""

    def __init__(self, module: Any | None = None) -> None:
        """Open NVML.

        Args:
            module: the binding; pynvml where it is None.

        Raises:
            NvmlUnavailable: no package, no library or no driver.
        """
        self.module = _import() if module is None else module
        self._errors = (self.module.NVMLError, self.module.NVMLLibraryMismatchError)
        self.call("nvmlInit")

    def close(self) -> None:
        """Release the library."""
        self.ask("nvmlShutdown")

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function; the one place where the library's errors become ours.

        Raises:
            NvmlUnavailable: with the name and what the library says.
        """
        try:
            return getattr(self.module, name)(*arguments)
        except self._errors as error:
            raise NvmlUnavailable(f"{name}: {clean_text(str(error))}") from error

    def ask(self, name: str, *arguments: object) -> Any:
        """Call a function; None where the board, driver or user may not have the answer."""
        try:
            return self.call(name, *arguments)
        except NvmlUnavailable:
            return None


def _import() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("the package nvidia-ml-py is not installed") from error
