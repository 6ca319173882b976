"""What a measurement asks after its load: planned, and its reference found, before any launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tokenwatt_site.accuracy_spec import NO_TASK
from tokenwatt_site.commands.reference import find_reference, score_of
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.files import put
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.measure.accuracy.sitting import Scorer, repeats_due
from tokenwatt_site.measure.accuracy.task import Reply, Scores, Task
from tokenwatt_site.measure.accuracy.tasks import plan_task, require_asked, score
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.keyring import Keyring

SPEC_FOLDER_FILE = "spec-folder"
"""In a work folder: the folder of the spec, from which `accuracy.data` is a path."""


@dataclass(frozen=True, slots=True)
class Questions:
    """A task, who scores the replies to it, and whose answers they are compared with.

    `reference` is that of a new measurement: one that is gone on with has its own.
    """

    task: Task
    scorer: Scorer
    reference: Reference | None


def data_folders(beside: Path | None) -> tuple[Path, ...]:
    """Return where `accuracy.data` is looked for: as a spec is, after the spec's own folder."""
    packaged = Path(str(resources.files("tokenwatt_site"))) / "specs"
    own = () if beside is None else (beside,)
    return tuple(dict.fromkeys((*own, Path(), Path("specs"), packaged)))


def plan_questions(
    spec: Spec,
    folder: Path,
    lines: Sequence[Entry],
    *,
    beside: Path | None,
    runs: Path,
    keys: Path,
    say: Callable[[str], None],
) -> Questions | None:
    """Make the questions of the gate, and find the run that the answers are compared with.

    Args:
        spec: whose gate asks.
        folder: work in progress; keeps where the spec lies, for when it is gone on with.
        lines: of the journal there; none of a new measurement.
        beside: the folder of the spec's file; None: as `folder` has it, or unknown.
        runs: where reference runs are.
        keys: folder of registered keys.
        say: told what was found.

    Returns:
        None where no gate is asked for, or all answers are there.

    Raises:
        SpecError: the spec does not say, or says otherwise, what exactly is asked.
        UsageError: no such task, its data is not there, or see `find_reference`.
        EnvironmentProblem: the harness is not there or fails, or `folder` is not writable.
    """
    gate, plan, api = spec.setup.accuracy_gate, spec.accuracy, spec.endpoint.api
    if gate.task == NO_TASK or (lines and not repeats_due(spec, lines)):
        return None
    if beside is None and (kept := folder / SPEC_FOLDER_FILE).is_file():
        beside = Path(kept.read_text(encoding="utf-8"))
    folders = data_folders(beside)
    task = plan_task(gate, plan, api, folders=folders)
    require_asked(gate, task)
    reference = None if lines else find_reference(spec, runs, Keyring.load(keys))
    told = f"accuracy: {gate.label}, {len(task.questions)} questions"
    say(told if lines else f"{told}, {_compared_with(spec, reference)}")
    if beside is not None:
        _keep(folder, beside)

    def scorer(replies: Sequence[Reply]) -> Scores:
        return score(gate, plan, api, task, replies, folders=folders)

    return Questions(task, scorer, reference)


def _compared_with(spec: Spec, reference: Reference | None) -> str:
    if spec.role == "baseline":
        return "this run is a reference"
    if reference is None:
        return "no reference, so the score stands alone"
    percent = 100 * score_of(reference) / len(reference.log.of_repeat(1))
    return f"reference run {reference.run_id[:12]} ({percent:.1f}%)"


def _keep(folder: Path, beside: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        put(folder / SPEC_FOLDER_FILE, str(beside.resolve()).encode())
    except OSError as error:
        raise EnvironmentProblem(
            Problem(f"cannot be written ({error.strerror})", file=str(folder))
        ) from error
