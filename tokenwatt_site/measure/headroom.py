"""What the client held in its self-test, against what is asked: who is refused, in which words."""

from __future__ import annotations

import math
from fractions import Fraction

from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.run import SelfTest
from tokenwatt_site.spec import Spec
from tokenwatt_site.validity import MAX_HELD_SHARE, highest_load_urps, highest_rate_urps
from tokenwatt_site.windows import Windows
from tokenwatt_site.workload import Realisation


def require_start(spec: Spec, realisation: Realisation, test: SelfTest) -> None:
    """See that the rate with which the search begins asks no more than half of what was held.

    Raises:
        EnvironmentProblem: it asks more; a trial would measure the client.
    """
    start_urps = min(spec.protocol.start_urps, highest_rate_urps(spec, realisation, None))
    if start_urps <= highest_load_urps(test, realisation):
        return
    needed = math.ceil(start_urps * Fraction(realisation.mean_output_tokens) / MAX_HELD_SHARE)
    raise EnvironmentProblem(
        Problem(
            "this machine holds too little of the load for a client to measure with: a trial would"
            " be about the client",
            field="protocol.start_rate",
            found=_words(test),
            expected=f"{math.ceil(needed / 1e6):,} events/s, twice what"
            f" {start_urps / 1e6:g} requests/s ask",
            remedy="Use a machine with free processor cores, of which the client needs one to"
            " itself; or lower protocol.start_rate, or ask for fewer output tokens.",
        )
    )


def highest_asked_urps(spec: Spec, windows: Windows, repeat: int) -> int:
    """Return the highest rate that a repeat may ask, whatever the client holds."""
    if len(windows.bands) > 1:
        # Each band's rows fill engine and window up to its end.
        return min(spec.protocol.max_urps, windows.bands[-1].highest_urps)
    return highest_rate_urps(spec, windows.realisation(repeat, windows.bands[0]), None)


def held_text(realisation: Realisation, test: SelfTest, most_urps: int) -> str:
    """Say what the client held, and how high the search may go where that is less than asked."""
    words = f"the client held {_words(test)}"
    if (capped_urps := highest_load_urps(test, realisation)) < most_urps:
        words += (
            f"; the search ends at half of that, {capped_urps / 1e6:.3f} requests/s, and not at"
            f" {most_urps / 1e6:.3f}"
        )
    return words


_LIMITED = {
    "client": "no more",
    "emitter": "more could not be tried, as the server of the test fell behind",
    "asked": "twice what the spec may ask",
}


def _words(test: SelfTest) -> str:
    errors = ", ".join(
        f"{what} p99 {'unknown' if found is None else f'{found / 1e6:.3f} ms'}"
        for what, found in (
            ("first token off by", test.first_token_error_p99_ns),
            ("dispatch lag", test.dispatch_lag_p99_ns),
        )
    )
    if test.events_per_s == 0:
        by = "the client" if test.limited_by == "client" else "the server of the test"
        return f"not even the lowest load tried, limited by {by} ({errors})"
    return (
        f"{test.events_per_s:,} events/s in {test.requests_urps / 1e6:,.1f} requests/s,"
        f" {_LIMITED[test.limited_by]} ({errors})"
    )
