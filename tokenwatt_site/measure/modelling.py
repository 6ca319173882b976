"""What a session has an engine model fitted for: to predict boundaries, and to keep the last one.

A fit saves trials and corrects what was measured. Whatever goes wrong in one is told, and costs no
measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenwatt_site.engine_model.document import ModelFit
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.engine_model.long_run import MIN_REPEATS, long_load
from tokenwatt_site.measure.search import Done
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial
from tokenwatt_site.windows import Windows


def predicted(
    spec: Spec, trials: Sequence[Trial], load: Load, near_urps: int, say: Callable[[str], None]
) -> int | None:
    """Return where a model of this engine has its boundary; None: no model tells.

    Args:
        spec: what is measured.
        trials: what it is fitted to.
        load: on which the boundary is predicted.
        near_urps: where it is looked for first, in 1e-6 requests/s.
        say: takes a line of what came of it.
    """
    # Its optimiser takes long to load, and only what measures needs it.
    from tokenwatt_site.measure import fitting  # noqa: PLC0415

    seen = [fitting.seen_of(trial) for trial in trials]
    try:
        found = fitting.predict(spec, seen, load, near_urps)
    except Exception as error:  # noqa: BLE001 - hours of measuring must not end in it
        say(f"the engine model could not be fitted ({type(error).__name__}: {error})")
        return None
    if found is not None:
        say(
            f"an engine model fitted to {len(seen)} trial{'s' if len(seen) != 1 else ''} has"
            f" the boundary at {found / 1e6:.3f} requests/s"
        )
    return found


def fitted(
    spec: Spec,
    windows: Windows,
    trials: Sequence[Trial],
    done: Sequence[Done],
    say: Callable[[str], None],
) -> ModelFit | None:
    """Fit an engine model to all trials, where they are enough for it to be judged.

    Args:
        spec: what was measured.
        windows: what it was measured on.
        trials: of all repeats.
        done: what each of them came to.
        say: takes lines of what came of it.

    Returns:
        None where there is no model, as it was said.
    """
    from tokenwatt_site.measure import fitting  # noqa: PLC0415 - as above

    boundaries = {d.repeat: d.boundary_urps for d in done if d.boundary_urps is not None}
    if len(boundaries) < MIN_REPEATS:
        say(
            f"no engine model is fitted: {len(boundaries)} of {len(done)} repeats have a boundary,"
            f" {MIN_REPEATS} are needed"
        )
        return None
    seen = [fitting.seen_of(trial) for trial in trials]
    say(f"fitting the engine model to {len(seen)} trials")
    try:
        fit = fitting.model_fit(
            spec,
            seen,
            {
                d.repeat: Load.of(windows.realisation(d.repeat, d.band))
                for d in done
                if d.band is not None
            },
            long_load(windows),
            boundaries,
        )
    except Exception as error:  # noqa: BLE001 - as above
        say(f"there is no engine model: {type(error).__name__}: {error}")
        return None
    if fit is None:
        say("there is no engine model: no trial has requests to fit to")
        return None
    family = fit.fits[0].family
    say(
        f"the engine model: prefill {family.prefill}, {family.token_budget:,} tokens a step;"
        f" fitted again without each of {len(fit.fits) - 1} repeats"
    )
    return fit
