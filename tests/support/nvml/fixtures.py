"""The scripted machine behind the real binding; its tests are skipped where no compiler is."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.support import nvml
from tests.support.nvml import ScriptedBoard, ScriptedMachine

Scripted = Callable[..., ScriptedMachine]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripted library, compiled once."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scripted(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scripted]:
    """Makes a machine of boards and lets pynvml load it.

    At the end all that was opened has to be closed, and every GPM sample freed.
    """
    library: Any = ctypes.CDLL(str(nvml_library))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    made: list[ScriptedMachine] = []

    def machine(*boards: ScriptedBoard, **options: Any) -> ScriptedMachine:
        path = tmp_path / f"page-{len(made)}"
        monkeypatch.setenv(nvml.PAGE_VARIABLE, str(path))
        made.append(ScriptedMachine(path, boards, **options))
        return made[-1]

    yield machine
    left = [(m.open, m.samples) for m in made]
    while library.nvmlShutdown() == 0:  # else the next test would be answered from this page
        pass
    assert left == [(0, 0)] * len(made)
