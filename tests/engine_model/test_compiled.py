"""Functions that are compiled when they are first called."""

from __future__ import annotations

import subprocess
import sys

import numba

from tokenwatt_site.engine_model.compiled import Compiled


def twice(number):
    return 2 * number


def test_it_gives_what_plain_python_gives():
    made = Compiled(twice)
    assert made(21) == made.py_func(21) == 42


def test_where_no_folder_can_keep_the_machine_code_it_is_compiled_all_the_same(monkeypatch):
    njit = numba.njit

    def read_only(*, cache):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(cache=False)

    monkeypatch.setattr(numba, "njit", read_only)
    assert Compiled(twice)(21) == 42


def test_a_command_that_plays_no_model_does_not_load_the_compiler():
    script = "import sys, tokenwatt_site.cli; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
