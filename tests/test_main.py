"""Tests of where the commands start."""

from __future__ import annotations

import runpy
import sys

import pytest

from tokenwatt_site import __main__ as start
from tokenwatt_site import __version__, cli


def test_ctrl_c_ends_a_command_with_130_wherever_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 130


def test_the_package_runs_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tokenwatt-site", "--version"])
    monkeypatch.delitem(sys.modules, "tokenwatt_site.__main__")  # it runs once more
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tokenwatt_site", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == __version__
