"""The whole path on this machine: launch, measure, sign, verify, build."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.commands.measure import measure_and_sign, new_folder, read_spec
from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.measure import embedded
from tokenwatt_site.measure.session import Events
from tokenwatt_site.run import Run
from tokenwatt_site.spec import Spec

SPEC = Path("demo.spec.yaml")
SITE_CONFIG = Path("mkdocs.yml")


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Where everything is. `report` is the page of the configuration just measured."""

    run_file: Path
    run: Run
    site: Path
    report: Path


def demonstrate(events: Events) -> Demonstration:
    """Measure the embedded engine with the demo spec and build the site that shows it.

    Raises:
        UsageError: not started in a checkout of the project (no mkdocs.yml).
        EnvironmentProblem: the engine's packages are missing, or the site does not build.
    """
    if not SITE_CONFIG.is_file():
        raise UsageError(
            Problem("is not here", file=str(SITE_CONFIG), remedy="Start it in the checkout.")
        )
    spec = read_spec(SPEC)
    _require_installed(spec)
    run_file, run = measure_and_sign(spec, new_folder(spec), events)
    site = build_site(SITE_CONFIG)
    return Demonstration(run_file, run, site, site / "reports" / f"{run.configuration}.html")


def _require_installed(spec: Spec) -> None:
    """The engine tells neither its build nor its model file; the packages do."""
    installed = embedded.identity()
    model, engine = spec.setup.model, spec.setup.engine
    rows = (
        ("setup.model.digest", f"sha256:{installed.model_sha256}", model.digest),
        (
            "setup.model.revision",
            f"{embedded.MODEL_PACKAGE} {installed.model_version}",
            model.revision,
        ),
        (
            "setup.engine.build",
            f"{embedded.ENGINE_PACKAGE} {installed.engine_version}",
            engine.build,
        ),
    )
    problems = [
        Problem("is not what is installed", field=field, found=found, expected=declared)
        for field, found, declared in rows
        if found != declared
    ]
    if problems:
        raise EnvironmentProblem(*problems)


def build_site(config: Path) -> Path:
    """Build the site of `config` as `mkdocs build --strict` does, and return its folder.

    Raises:
        EnvironmentProblem: the build failed; with what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)],
        capture_output=True,
        text=True,
        check=False,
        # Material's notice about its successor; the version is pinned.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    if done.returncode != 0:
        said = "\n".join(clean_text(line) for line in done.stderr.splitlines()[-20:])
        raise EnvironmentProblem(Problem(f"the site was not built:\n{said}", file=str(config)))
    return config.parent / "site"
