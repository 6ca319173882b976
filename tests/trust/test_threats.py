"""What a publisher may try, a row each of the table of threats: who signs it is held to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import (
    JournalPlan,
    RunBuilder,
    ToyEngine,
    a_key,
    answers_of,
    gated_spec,
    gpu_spec,
    played_power,
    small_spec,
    with_answers,
    write_signed,
)
from tests.trust.test_verify import (
    alter,
    altered,
    check,
    document,
    drop,
    evidence_file,
    gunzip,
    gzip,
    put,
    refused,
    two_repeats,
    without,
)
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.prompts import trial_key
from tokenwatt_site.validity import MAX_CACHED_SHARE, MAX_CLOCK_STEP_NS, MAX_LAG_NS
from tokenwatt_site.workload import Realisation

Change = Callable[[list[RequestRecord]], list[RequestRecord]]


# --- T1 an edited run file, or edited evidence


def test_t1_an_edited_number_is_no_longer_what_was_signed(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"scored": 20', '"scored": 21', 1), encoding="utf-8")
    refused(path, 4)


def test_t1_edited_evidence_is_no_longer_what_was_signed(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    piece = evidence_file(path, "journal")
    piece.write_bytes(gzip(gunzip(piece).replace(b"kernel", b"kernal", 1)))
    refused(path, 6, "digest")


def test_t1_whoever_signs_an_edited_number_is_held_to_the_evidence(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path)
    value = document(path)
    value["claims"]["trials"][0]["complete"] -= 1
    refused(write_signed(path, value, a_key()), 10, "claims.trials.0.complete")


# --- T2 dropped or chosen trials


def test_t2_a_trial_that_was_dropped_leaves_a_gap_in_the_numbers(tmp_path: Path) -> None:
    def dropped(plan: JournalPlan) -> JournalPlan:
        return without(without(plan, "trial_start"), "trial_end")

    builder = RunBuilder(
        edit_journal=dropped, edit_requests=lambda all_: [r for r in all_ if r.trial != 1]
    )
    refused(builder.write(tmp_path), 7, "which is not the next")


def test_t2_requests_of_a_trial_that_the_journal_does_not_tell_are_missed(tmp_path: Path) -> None:
    def dropped(plan: JournalPlan) -> JournalPlan:
        return without(without(plan, "trial_start", 2), "trial_end", 2)

    refused(RunBuilder(edit_journal=dropped).write(tmp_path), 8, "requests")


def test_t2_a_journal_that_ends_early_is_no_complete_run(tmp_path: Path) -> None:
    refused(RunBuilder(edit_journal=lambda plan: plan[:-1]).write(tmp_path), 7, "says complete")


def test_t2_a_worse_repeat_cannot_be_left_out(tmp_path: Path) -> None:
    builder = two_repeats(edit_requests=lambda all_: [r for r in all_ if r.repeat == 1])
    refused(builder.write(tmp_path), 8, "requests")


# --- T4 prompts that were known or cached before


@dataclass(frozen=True)
class Changed(ToyEngine):
    """An engine, or a client, that does to every request what its publisher would not tell."""

    change: Callable[[RequestRecord], RequestRecord] = lambda record: record

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        for record in super().serve(realisation, rate_urps, repeat=repeat, trial=trial):
            yield self.change(record)


def expect_no_number(folder: Path, engine: ToyEngine, words: str) -> None:
    """Expect that a run says so itself where it is honest, and is refused where it is not."""
    honest = check(RunBuilder(engine=engine).write(folder / "honest")).claims
    assert {trial.verdict for trial in honest.trials} == {"INVALID"}
    assert all(words in (trial.reason or "") for trial in honest.trials)
    assert honest.metric("goodput").value is None

    def cheat(records: list[RequestRecord]) -> list[RequestRecord]:
        assert isinstance(engine, Changed)
        return [engine.change(record) for record in records]

    refused(RunBuilder(edit_requests=cheat).write(folder / "lying"), 10, "claims")


def cached(record: RequestRecord) -> RequestRecord:
    share = 2 * float(MAX_CACHED_SHARE) + 0.05
    return replace(record, cached_tokens=round((record.prompt_tokens or 0) * share))


def test_t4_prompts_that_were_cached_make_no_number(tmp_path: Path) -> None:
    expect_no_number(tmp_path, Changed(change=cached), "cache")


def test_t4_every_trial_has_prompts_of_its_own() -> None:
    keys = {
        trial_key(nonce, configuration, repeat, trial)
        for nonce in ("00" * 32, "01" * 32)
        for configuration in ("a-1", "a-2")
        for repeat in (1, 2)
        for trial in (1, 2)
    }
    assert len(keys) == 16


@pytest.mark.parametrize("changes", [{"seed_rule": "mine"}, {"nonce": "0"}, {"nonce": None}])
def test_t4_prompts_of_another_rule_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    refused(RunBuilder(edit_journal=altered("open", **changes)).write(tmp_path), 7)


# --- T5 hidden retries, dropped slow requests


@pytest.mark.parametrize(
    "change",
    [drop(9), lambda all_: [*all_[:9], all_[9], *all_[9:]]],
    ids=["a slow one is dropped", "one was sent again"],
)
def test_t5_every_planned_request_is_there_once(tmp_path: Path, change: Change) -> None:
    refused(RunBuilder(edit_requests=change).write(tmp_path), 8, "requests")


def late(record: RequestRecord) -> RequestRecord:
    return replace(record, sent_ns=(record.sent_ns or 0) + 20 * MAX_LAG_NS)


def test_t5_requests_that_were_sent_later_than_planned_make_no_number(tmp_path: Path) -> None:
    expect_no_number(tmp_path, Changed(change=late), "lag")


def test_t5_an_error_counts_against_the_objectives(tmp_path: Path) -> None:
    path = RunBuilder(edit_requests=alter(status=Status.HTTP_ERROR)).write(tmp_path)
    refused(path, 10, "claims")


# --- T6 replayed or edited power

BOARDS = RunBuilder(spec=gpu_spec(), simulated=False, idle_s=12)


def noisy(log: PowerLog, seed: int = 1) -> PowerLog:
    """As real boards draw: never the same to the milliwatt."""
    chance = random.Random(seed)
    return replace(
        log,
        samples=tuple(
            replace(s, power_mw=(s.power_mw or 0) + chance.randrange(4_000)) for s in log.samples
        ),
    )


NOISY = noisy(played_power(BOARDS))


def replayed(log: PowerLog) -> PowerLog:
    """Have a minute of every board's watts come again, an hour later."""
    watts = {n: [s.power_mw for s in log.of_board(n)] for n in range(len(log.boards))}
    place = dict.fromkeys(watts, 0)
    samples = []
    for sample in log.samples:
        at = place[sample.board]
        place[sample.board] += 1
        again = watts[sample.board][at - 900] if 1000 <= at < 1060 else sample.power_mw
        samples.append(replace(sample, power_mw=again))
    return replace(log, samples=tuple(samples))


def test_t6_watts_as_real_boards_draw_them_are_plausible(tmp_path: Path) -> None:
    assert check(replace(BOARDS, power=NOISY).write(tmp_path)).claims.slo_met


def test_t6_watts_that_come_a_second_time_are_refused(tmp_path: Path) -> None:
    path = replace(BOARDS, power=replayed(NOISY)).write(tmp_path)
    refused(path, 9, "evidence.power, board 0", "come again from 1000 on")


def test_t6_watts_of_a_simulated_engine_may_come_again(tmp_path: Path) -> None:
    check(replace(BOARDS, simulated=True, power=replayed(NOISY)).write(tmp_path))


def test_t6_watts_that_stand_still_are_no_replay(tmp_path: Path) -> None:
    check(replace(BOARDS, power=played_power(BOARDS)).write(tmp_path))


def test_t6_watts_that_the_counter_contradicts_are_not_reconciled(tmp_path: Path) -> None:
    halved = tuple(replace(s, power_mw=(s.power_mw or 0) // 2) for s in NOISY.samples)
    run = check(replace(BOARDS, power=replace(NOISY, samples=halved)).write(tmp_path))
    assert "not reconciled" in {outcome.level for outcome in run.claims.outcomes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load_mw": 90_000, "idle_mw": 300_000}, "without a request"),
        ({"load_mw": 600_000}, "limit"),
    ],
    ids=["less under load than idle", "above the limit"],
)
def test_t6_watts_that_physics_forbids_are_invalid(
    tmp_path: Path, changes: dict[str, int], words: str
) -> None:
    run = check(replace(BOARDS, power=noisy(played_power(BOARDS, **changes))).write(tmp_path))
    found = [outcome for outcome in run.claims.outcomes if outcome.level == "INVALID"]
    assert any(words in outcome.text for outcome in found)


def test_t6_better_watts_than_were_read_are_not_what_follows(tmp_path: Path) -> None:
    fewer = tuple(replace(s, energy_mj=(s.energy_mj or 0) * 9 // 10) for s in NOISY.samples)
    builder = replace(BOARDS, power=NOISY, published={"power": replace(NOISY, samples=fewer)})
    refused(builder.write(tmp_path), 10, "claims")


# --- T7 a clock that was set


def test_t7_a_trial_in_which_the_clock_was_set_makes_no_number(tmp_path: Path) -> None:
    step = altered("trial_end", 1, clock_step_ns=2 * MAX_CLOCK_STEP_NS)
    refused(RunBuilder(edit_journal=step).write(tmp_path), 10, "verdict")


@pytest.mark.parametrize("day", ["2025-12-31", "2099-01-01"])
def test_t7_dates_at_which_nothing_can_have_been_measured_are_refused(
    tmp_path: Path, day: str
) -> None:
    at = f"{day}T00:00:00.000000Z"
    refused(
        RunBuilder(edit_document=put("conditions", "started", value=at)).write(tmp_path),
        9,
        "conditions.started",
    )


# --- T8 another board, a share of one, a lower limit


def test_t8_all_trials_are_of_the_boards_that_the_run_names(tmp_path: Path) -> None:
    change = put("conditions", "board_uuids", value=["GPU-0", "GPU-7"])
    refused(replace(BOARDS, power=NOISY, edit_document=change).write(tmp_path), 9, "board_uuids")


@pytest.mark.parametrize(
    ("update", "words"),
    [({"name": "Faster GPU"}, "boards.0.name"), ({"limit_mw": 700_000}, "boards.0.limit_mw")],
    ids=["another model", "another limit"],
)
def test_t8_a_board_is_of_the_model_and_limit_that_the_setup_declares(
    tmp_path: Path, update: dict[str, Any], words: str
) -> None:
    boards = (NOISY.boards[0].model_copy(update=update), *NOISY.boards[1:])
    refused(replace(BOARDS, power=replace(NOISY, boards=boards)).write(tmp_path), 9, words)


def test_t8_a_board_is_there_once(tmp_path: Path) -> None:
    boards = (NOISY.boards[0],) * 2
    refused(replace(BOARDS, power=replace(NOISY, boards=boards)).write(tmp_path), 9, "different")


# --- T9 numbers that cannot be


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (alter(first_ns=0), "before"),
        (alter(end_ns=0), "ended before"),
        (alter(output_tokens=10**9, first_tokens=10**9 + 1), "more tokens in its first event"),
        (alter(cached_tokens=10**6), "more cached prompt tokens"),
    ],
    ids=["an early answer", "an early end", "tokens from nowhere", "a large cache"],
)
def test_t9_a_request_that_cannot_have_been_is_refused(
    tmp_path: Path, change: Change, words: str
) -> None:
    refused(RunBuilder(edit_requests=change).write(tmp_path), 9, words)


# --- T11 answers that are shorter or worse


def test_t11_an_answer_shorter_than_asked_is_not_complete(tmp_path: Path) -> None:
    short = alter(output_tokens=1)
    refused(RunBuilder(edit_requests=short).write(tmp_path), 9, "is called complete")


def test_t11_short_answers_miss_every_objective(tmp_path: Path) -> None:
    def short(records: list[RequestRecord]) -> list[RequestRecord]:
        return [replace(r, output_tokens=1, status=Status.SHORT_OUTPUT) for r in records]

    refused(RunBuilder(edit_requests=short).write(tmp_path), 10, "claims")


def test_t11_a_wrong_answer_cannot_be_called_right_afterwards(tmp_path: Path) -> None:
    spec = gated_spec(4)
    honest = answers_of(spec, [True, True, False, False])
    better = answers_of(spec, [True, True, True, False])
    builder = RunBuilder(spec=spec, accuracy=honest, published={"accuracy": better})
    refused(builder.write(tmp_path), 10, "claims")


def test_t11_an_answer_that_fell_short_is_marked_by_its_own_text(tmp_path: Path) -> None:
    spec = gated_spec(4)
    log = answers_of(spec, [True, True, True, True])
    lying = log.answers[0].model_copy(update={"flags": ("empty",)})
    path = RunBuilder(spec=spec, accuracy=with_answers(log, lying)).write(tmp_path)
    refused(path, 6, "flags")


def test_what_nobody_tried_is_valid(tmp_path: Path) -> None:
    assert check(RunBuilder(spec=small_spec()).write(tmp_path)).claims.slo_met
