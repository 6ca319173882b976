"""What holds for the package as a whole."""

from __future__ import annotations

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest

import tokenwatt_site
from tests.conftest import ROOT

MODULES = sorted((ROOT / "tokenwatt_site").rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_version_is_the_one_that_was_installed() -> None:
    assert metadata.version("tokenwatt-site") == tokenwatt_site.__version__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "tokenwatt_site" / "py.typed").exists()


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_says_what_it_owns(path: Path) -> None:
    source = path.read_text()
    assert not source or ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_names_no_absolute_path_of_a_machine(path: Path) -> None:
    assert not re.search(r"[\"'](/home/|/tmp/|/Users/|/root/|[A-Z]:\\\\)", path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    if path.parent.name == "tokenwatt_site" and path.stem == "cli":
        return
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"print", "exit", "quit"}
