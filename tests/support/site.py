"""Builds whole sites with MkDocs, as `mkdocs build --strict` does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parents[2]


def make_project(folder: Path, **options: str) -> Path:
    """Copy the project's site sources into `folder`, without its runs; set options of the plugin.

    Keys and named comparisons go with the runs.

    Returns:
        The folder of the runs, empty.
    """
    of_runs = shutil.ignore_patterns("keys", "comparisons")
    shutil.copytree(ROOT / "site_src", folder / "site_src", ignore=of_runs)
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    lines = "".join(f"\n      {key}: {value}" for key, value in options.items())
    if lines:
        entry = f"  - tokenwatt:{lines}\n"
        config = re.sub(r"  - tokenwatt:\n( {6}.*\n)+", lambda _: entry, config)
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    (folder / "runs").mkdir()
    return folder / "runs"


def build_site(folder: Path) -> Path:
    """Build the project in `folder` and return the folder of the site."""
    config = load_config(str(folder / "mkdocs.yml"))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()
    return folder / "site"
