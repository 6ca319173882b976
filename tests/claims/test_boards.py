"""What each board did in a window, in words and means."""

from __future__ import annotations

import pynvml
import pytest

from tokenwatt_site.claims.boards import HELD_BACK, board_claims
from tokenwatt_site.energy.window import window_energy
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.run import BoardClaim

S = 10**9


def claims_of(*samples: PowerSample, limit_mw: int | None = 700_000) -> tuple[BoardClaim, ...]:
    boards = max(sample.board for sample in samples) + 1
    log = PowerLog(
        "nvml",
        "gpu",
        S,
        None,
        tuple(Board(uuid=f"GPU-{n}", name="Toy", limit_mw=limit_mw) for n in range(boards)),
        samples,
    )
    energy = window_energy(log, 2 * S, 6 * S, max_gap_ns=3 * S)
    return board_claims(log, 2, energy, 2 * S, 6 * S)


def sample(second: int, board: int = 0, power_mw: int | None = 400_000, **told: int) -> PowerSample:
    return PowerSample(second * S, board, power_mw, None, **told)


def test_each_board_has_its_own_energy_and_watts() -> None:
    samples = [
        sample(n, board, 1000 * watts) for n in range(9) for board, watts in ((0, 400), (1, 300))
    ]
    first, second = claims_of(*samples)
    assert (first.repeat, first.uuid, second.uuid) == (2, "GPU-0", "GPU-1")
    assert (first.energy_j, second.energy_j) == pytest.approx((1600, 1200))
    assert (first.mean_power_w, second.mean_power_w) == pytest.approx((400, 300))
    assert first.limit_w == 700


def test_clocks_and_temperature_are_means_over_the_window_alone() -> None:
    clocks = [100, 100, 1000, 1100, 1200, 1300, 1400, 9000, 9000]
    (claim,) = claims_of(
        *(sample(n, sm_mhz=mhz, memory_mhz=2 * mhz, celsius=n) for n, mhz in enumerate(clocks))
    )
    assert (claim.sm_mhz, claim.memory_mhz, claim.celsius) == (1200, 2400, 4)


def test_b14_what_the_instrument_does_not_tell_is_none() -> None:
    (claim,) = claims_of(*(sample(n, power_mw=None) for n in range(9)), limit_mw=None)
    assert claim == BoardClaim(
        repeat=2,
        uuid="GPU-0",
        name="Toy",
        energy_j=None,
        mean_power_w=None,
        limit_w=None,
        sm_mhz=None,
        memory_mhz=None,
        celsius=None,
        held_back=(),
    )


def test_what_held_a_board_back_is_told_with_its_share_of_the_samples() -> None:
    reasons = {2: 0x4, 3: 0x4, 4: 0x20 | 0x4, 5: 0x1, 6: 0x0}
    (claim,) = claims_of(
        *(sample(n, reasons=reasons[n]) if n in reasons else sample(n) for n in range(9))
    )
    assert claim.held_back == (("power limit", 0.6), ("thermal limit, by the driver", 0.2))


def test_samples_that_tell_no_reasons_are_in_no_share() -> None:
    (claim,) = claims_of(*(sample(n, reasons=0x8) if n == 4 else sample(n) for n in range(9)))
    assert claim.held_back == (("hardware slowdown", 1.0),)


def test_an_idle_board_is_not_held_back() -> None:
    (claim,) = claims_of(*(sample(n, reasons=0x1) for n in range(9)))
    assert claim.held_back == ()


def test_every_reason_of_nvml_but_idle_has_words_of_its_own() -> None:
    families = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
    names = {name for name in dir(pynvml) if name.startswith(families) and name[-3:] != "All"}
    bits = {getattr(pynvml, name) for name in names}
    known = [bit for bit, _ in HELD_BACK]
    assert {*bits, *known} - {0, pynvml.nvmlClocksEventReasonGpuIdle} == set(known)
    assert len(set(known)) == len({words for _, words in HELD_BACK}) == len(HELD_BACK)
