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
    declared = spec.setup.model.digest
    found = f"sha256:{embedded.identity().model_sha256}"
    if found != declared:
        raise EnvironmentProblem(
            Problem(
                "is another model file",
                field="setup.model.digest",
                found=found,
                expected=declared,
            )
        )
    run_file, run = measure_and_sign(spec, new_folder(spec), events)
    site = build_site(SITE_CONFIG)
    return Demonstration(run_file, run, site, site / "reports" / f"{run.configuration}.html")


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
