"""The wheel: built, installed in an environment of its own, used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.runs import RunBuilder

CONFIG = """\
site_name: tokenwatt
theme: {name: material, font: false}
plugins: [tokenwatt]
"""


def called(*command: str | Path, folder: Path, status: int = 0) -> str:
    """Run a command in `folder` without the checkout on its path; return all that it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "COVERAGE"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    called(*build, ROOT, folder=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment; what the project depends on is borrowed from ours."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    called(sys.executable, "-m", "venv", "--without-pip", folder, folder=wheel.parent)
    bin_folder = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", bin_folder / "python", "install")
    called(*pip, "--quiet", "--no-deps", "--no-index", wheel, folder=wheel.parent)
    (own,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched after `own`, and its own .pth files, which would
    # bring the checkout back, are not read.
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return bin_folder


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tokenwatt_site").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    expected |= {
        f"tokenwatt_site/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "specs").rglob("*")
        if path.is_file()
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    suffixes = {Path(name).suffix for name in expected}
    assert {".j2", ".css", ".js", ".toml", ".json", ".jsonl", ".typed"} <= suffixes
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_offers_both_commands_and_the_plugin(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (path,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    lines = archive.read(path).decode().splitlines()
    assert "tokenwatt-site = tokenwatt_site.__main__:main" in lines
    assert "tokenwatt = tokenwatt_site.__main__:short_main" in lines
    assert "tokenwatt = tokenwatt_site.plugin:TokenwattPlugin" in lines


def test_the_installed_commands_start_in_an_empty_folder(programs: Path, tmp_path: Path) -> None:
    where = "import tokenwatt_site; print(tokenwatt_site.__file__)"
    assert str(programs.parent) in called(programs / "python", "-c", where, folder=tmp_path)
    assert "measure" in called(programs / "tokenwatt-site", "--help", folder=tmp_path)
    assert "run" in called(programs / "tokenwatt", "--help", folder=tmp_path)
    found = called(programs / "tokenwatt-site", "spec", "check", "demo.spec.yaml", folder=tmp_path)
    assert "valid, configuration smollm2-135m-instruct-cpu-llama-cpp-" in found
    assert not list(tmp_path.iterdir())


def test_the_installed_package_verifies_a_run_and_builds_its_site(
    programs: Path, tmp_path: Path
) -> None:
    path = RunBuilder().write(tmp_path / "runs" / "toy")
    configuration = RunBuilder().spec.configuration_id
    called(programs / "tokenwatt-site", "verify", path, folder=tmp_path)
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    (tmp_path / "docs").mkdir()
    called(programs / "python", "-m", "mkdocs", "build", "--strict", folder=tmp_path)
    site = tmp_path / "site"
    (report,) = site.glob(f"reports/*{configuration}/index.html")
    text = report.read_text()
    assert "Toy model on a CPU" in text
    assert "<svg" in text
    assert "Toy model on a CPU" in (site / "index.html").read_text()
    assert (site / "assets" / "tokenwatt.css").stat().st_size > 1000
    assert (site / "assets" / "tokenwatt.js").stat().st_size > 1000
