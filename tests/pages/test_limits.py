from __future__ import annotations

import pytest

from tests.pages.conftest import ENERGY, number, told, with_metrics
from tests.pages.test_chart import rows_of
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import limits
from tokenwatt_site.run import MetricClaim, Outcome

UPPER = f"{METRICS['mbu'].label}, modelled, upper"


def changed(configuration: Configuration, *metrics: MetricClaim) -> Configuration:
    return told(configuration, metrics=with_metrics(configuration.claims, *metrics))


def drawn_rows(configuration: Configuration) -> list[str]:
    figure = limits.distance(configuration)
    assert figure.chart is not None
    return [str(r["text"]) for r in rows_of(figure.chart.specs[0]) if "zero" in r][:5]


def test_each_limit_is_a_bar_with_its_share(energetic: Configuration) -> None:
    assert drawn_rows(energetic) == [
        "Bandwidth, modelled: 61% of rated",
        "Bandwidth, measured by the boards: 66% of rated",
        "Compute: 21% of the dense bf16 peak",
        "Power: 85% of the enforced limit",
        "DRAM reads alone (a reference): 15.6% of the energy",
    ]
    figure = limits.distance(energetic)
    assert figure.absent == ()
    assert figure.table is not None
    assert [row[3].split(":")[0] for row in figure.table[1]] == [
        "hard bound",
        "hard bound",
        "hard bound",
        "enforced by the driver",
        "a reference, no proven bound",
    ]


def test_the_heading_names_the_nearest_limit(energetic: Configuration) -> None:
    assert limits.nearest(energetic) == "Nearest limit: power, at 85% of the enforced limit"
    measured = changed(energetic, number("mbu_measured", 91.0))
    assert limits.nearest(measured) == (
        "Nearest limit: bandwidth, measured by the boards, at 91% of rated"
    )


def test_a_reference_is_never_the_nearest_limit(energetic: Configuration) -> None:
    near = changed(energetic, number("dram_energy_share", 99.0))
    assert "power" in limits.nearest(near)


def test_a_share_that_is_not_known_is_a_frame_with_its_reason(energetic: Configuration) -> None:
    figure = limits.distance(
        changed(
            energetic,
            number("compute_share", None, reason="the board is not in the table"),
            number("power_limit_share", None, reason="no limit was read"),
        )
    )
    assert figure.chart is not None
    assert figure.absent == (
        "Compute: the board is not in the table",
        "Power: no limit was read",
    )


def test_where_nothing_is_known_the_figure_is_there_and_says_why(demo: Configuration) -> None:
    figure = limits.distance(demo)
    assert (figure.chart, figure.heading) == (None, "Distance to the limits")
    assert figure.missing == "not measured: no share of any limit is known"
    lacking = [name for why in figure.absent for name in why.partition(": ")[0].split("; ")]
    assert sorted(lacking) == [
        "Bandwidth, measured by the boards",
        "Bandwidth, modelled",
        "Compute",
        "DRAM reads alone (a reference)",
        "Power",
    ]
    assert figure.table is not None
    assert all(row[1] for row in figure.table[1])


def test_shares_that_lack_the_same_have_one_frame(energetic: Configuration) -> None:
    why = "an architecture that is not modelled: Odd"
    keys = ("mbu", "compute_share", "dram_energy_share")
    lacking = changed(energetic, *(number(key, None, reason=why) for key in keys))
    assert limits.distance(lacking).absent == (
        f"Bandwidth, modelled; Compute; DRAM reads alone (a reference): {why}",
    )


def test_one_known_limit_is_not_called_the_nearest_of_several(demo: Configuration) -> None:
    assert limits.nearest(changed(demo, number("power_limit_share", 40.0))).endswith(
        "at 40% of the enforced limit, the only one that is known"
    )


def test_b16_traffic_above_the_rated_bandwidth_is_drawn_as_it_is(energetic: Configuration) -> None:
    over = limits.traffic(changed(energetic, number("mbu", 103.0)))
    assert over.chart is not None
    assert "[0, 107.12]" in str(over.chart.specs[0])
    assert over.note.startswith("The dashed line is 100% of rated bandwidth.")
    assert any(r.get("value") == 103.0 for r in rows_of(over.chart.specs[0]))


def test_b16_a_withheld_figure_has_its_words_and_the_measured_one_stays(
    energetic: Configuration,
) -> None:
    why = "the model reads 112% of bus × clock"
    metrics = with_metrics(energetic.claims, number("mbu", None, reason=f"withheld: {why}"))
    outcome = Outcome(key="mbu", level="withheld", text=why)
    figure = limits.traffic(told(energetic, metrics=metrics, outcomes=(outcome,)))
    assert figure.chart is not None
    assert figure.absent == (f"Modelled: withheld: {why}",)
    assert "Withheld: see Key figures." in figure.note


def test_modelled_and_measured_traffic_stand_beside_each_other(energetic: Configuration) -> None:
    figure = limits.traffic(energetic)
    assert figure.chart is not None
    assert "Modelled: 61% of rated; Measured by the boards: 66% of rated" in (
        figure.chart.description
    )
    assert "[0, 100.0]" in str(figure.chart.specs[0])
    assert figure.note == (
        "Axis runs to 100% of rated bandwidth. Of bus × clock (4.917 TB/s per board): modelled 60%"
        " and measured 65%. Measured minus modelled is +5 points: activations, writes, prefill and"
        " traffic between boards, or a wrong model."
    )


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (number("mbu", 61.0), "modelled"),
        (number("mbu", 61.0, label=UPPER), "modelled, upper"),
        (
            number("mbu_measured", 66.0, label=f"{METRICS['mbu_measured'].label}, by samples"),
            "measured by the boards, by samples",
        ),
    ],
)
def test_a_share_says_how_it_was_come_by(claim: MetricClaim, words: str) -> None:
    assert limits.how(claim) == words


def test_the_made_up_result_has_a_value_for_every_limit() -> None:
    assert set(limits._HOW) | {"compute_share", "power_limit_share"} <= set(ENERGY)
