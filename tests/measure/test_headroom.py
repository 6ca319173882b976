"""Who may measure with what its client held, and the words for it."""

import math

import pytest

from tests.support.runs import HELD, small_spec
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.headroom import held_text, require_start
from tokenwatt_site.workload import workload_of

SPEC = small_spec()


def drawn():
    protocol = SPEC.protocol
    return workload_of(SPEC.setup).realisation(
        1, lead_in=protocol.lead_in, scored=protocol.scored, tail=protocol.tail
    )


def test_a_start_above_half_of_what_was_held_is_refused_with_what_to_do():
    least = math.ceil(2 * drawn().mean_output_tokens)
    little = HELD.model_copy(update={"events_per_s": least - 1, "requests_urps": 2_000_000})
    little = little.model_copy(update={"limited_by": "client"})
    with pytest.raises(EnvironmentProblem) as caught:
        require_start(SPEC, drawn(), little)
    text = str(caught.value)
    assert "protocol.start_rate" in text
    assert (
        f"found {least - 1} events/s in 2.0 requests/s, no more (first token off by p99 0.040 ms"
        in text
    )
    assert f"expected {least} events/s, twice what 1 requests/s ask" in text
    assert "free processor cores" in text
    require_start(SPEC, drawn(), little.model_copy(update={"events_per_s": least}))


@pytest.mark.parametrize(
    ("limited_by", "words"),
    [
        ("client", "not even the lowest load tried, limited by the client"),
        ("emitter", "not even the lowest load tried, limited by the server of the test"),
    ],
)
def test_a_client_that_held_nothing_is_refused_with_whose_limit_it_was(limited_by, words):
    nothing = HELD.model_copy(
        update={
            "events_per_s": 0,
            "requests_urps": 0,
            "limited_by": limited_by,
            "first_token_error_p99_ns": None,
        }
    )
    with pytest.raises(EnvironmentProblem, match=words) as caught:
        require_start(SPEC, drawn(), nothing)
    assert "first token off by p99 unknown" in str(caught.value)


def test_the_line_to_the_user_says_where_the_search_ends_only_where_the_client_ends_it():
    assert held_text(drawn(), HELD, 64_000_000) == (
        "the client held 80,000 events/s in 4,000.0 requests/s, twice what the spec may ask"
        " (first token off by p99 0.040 ms, dispatch lag p99 0.200 ms)"
    )
    little = HELD.model_copy(update={"requests_urps": 16_000_000, "limited_by": "emitter"})
    assert held_text(drawn(), little, 64_000_000).endswith(
        "; the search ends at half of that, 8.000 requests/s, and not at 64.000"
    )
