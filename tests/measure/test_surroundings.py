"""What an engine repeats of this machine reaches no file that is published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.measure.test_session import Lab, lab, run  # noqa: F401
from tests.support.runs import a_failure, a_key, an_answer, answers_of, gated_spec, small_spec
from tokenwatt_site.commands.measure import resumed_spec
from tokenwatt_site.commands.signing import run_text, signed_run
from tokenwatt_site.errors import EnvironmentProblem, Interrupted
from tokenwatt_site.measure import searching
from tokenwatt_site.measure.surroundings import surroundings
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.private import Private, hidden_host

HOST = "gpu-node-17.corp.example"
TOKEN = "hf_abcdefghijklmnopqrst"  # noqa: S105  # of nobody
VALUE = "no shape at all"
SAID = (
    f"no file /home/alice/models/x, nor C:\\Users\\alice\\y: asked {HOST}:9000 with {TOKEN}"
    f" and {VALUE}"
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", VALUE)


def attached(**changes: Any) -> Any:
    return small_spec(endpoint__start="attach", endpoint__url=f"http://{HOST}:9000", **changes)


def published(folder: Path) -> Iterator[str]:
    """Yield every text that was written there; the spec as it was given is for this machine."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "spec.json":
            yield path.read_bytes().decode("utf-8", "replace")


def expect_nothing_private(texts: Iterator[str]) -> None:
    for text in texts:
        for word in ("alice", TOKEN, VALUE, HOST, "gpu-node-17"):
            assert word not in text


def test_f27_a_run_says_nothing_private_that_its_engine_said(
    lab: Lab,  # noqa: F811
    told: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_trial(*given: Any, **options: Any) -> Any:
        return replace(lab.run_trial(*given, **options), messages={f"HTTP 500: {SAID}": 9})

    monkeypatch.setattr(searching, "run_trial", run_trial)
    lab.meters = {"dcgm": f"http://{HOST}:9400/metrics: {SAID}"}
    measured = run(
        lab,
        attached(instruments=[{"sensor": "dcgm", "url": f"http://{HOST}:9400/metrics"}]),
        tmp_path / "work",
    )
    document = run_text(signed_run(measured, tmp_path / "out", a_key())).decode()
    opening = measured.evidence.journal[0].data
    assert opening["instruments"][0]["reason"].startswith(f"http://{hidden_host(HOST)}:9400/")
    errors = [n.data["errors"] for n in measured.evidence.journal if n.event == "trial_end"]
    scrubbed = f"no file ~/models/x, nor ~\\y: asked {hidden_host(HOST)}:9000 with [secret]"
    assert errors[0] == [f"9 x HTTP 500: {scrubbed} and [secret]"]
    assert any(VALUE in line for line in lab.said), "the user is told what was said"
    expect_nothing_private(iter([document, *published(tmp_path / "work")]))


def test_f27_what_ends_a_run_is_kept_without_what_is_private(
    lab: Lab,  # noqa: F811
    told: None,
    tmp_path: Path,
) -> None:
    def broken(number: int) -> None:
        if number == 2:
            raise Interrupted(SAID)

    lab.before_trial = broken
    with pytest.raises(Interrupted):
        run(lab, attached(), tmp_path / "work")
    (why,) = [text for text in published(tmp_path / "work") if "~/models/x" in text]
    expect_nothing_private(iter([why]))


def test_a_measurement_of_a_hidden_host_goes_on_where_it_was_begun(
    lab: Lab,  # noqa: F811
    told: None,
    tmp_path: Path,
) -> None:
    spec = attached()

    def broken(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    lab.before_trial = broken
    with pytest.raises(Interrupted):
        run(lab, spec, tmp_path / "work")
    lab.before_trial = lambda _: None
    assert resumed_spec(tmp_path / "work") == spec
    measured = run(lab, resumed_spec(tmp_path / "work"), tmp_path / "work")
    assert measured.spec == spec.published()
    assert measured.spec != spec


def test_a_measurement_of_another_host_is_not_gone_on_with(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    run(lab, attached(), tmp_path / "work")
    other = small_spec(endpoint__start="attach", endpoint__url="http://other-host.example:9000")
    with pytest.raises(EnvironmentProblem, match="another spec"):
        run(lab, other, tmp_path / "work")


def test_keys_of_the_environment_are_known_by_the_names_of_their_variables() -> None:
    spec = small_spec(
        endpoint__api_key_variable="ENGINE",
        instruments=[
            {
                "sensor": "redfish",
                "url": f"https://{HOST}/redfish/v1/Chassis/1",
                "user_variable": "BMC_USER",
                "password_variable": "BMC_PASS",
            }
        ],
    )
    environment = {
        "ENGINE": "engine's own key",
        "BMC_USER": "operator1",
        "BMC_PASS": "pass of the bmc",
        "HF_TOKEN": "a token of the hub",
        "OTHER_KEY": "EMPTY",
        "PATH": "/usr/bin:/bin",
    }
    found = surroundings(spec, environment, host="this-machine")
    assert found.secrets == {
        "engine's own key",
        "operator1",
        "pass of the bmc",
        "a token of the hub",
    }
    assert found.hosts == {HOST, "this-machine"}


def work_folder(path: Path) -> WorkFolder:
    private = Private(secrets=frozenset({VALUE}), hosts=frozenset({HOST}))
    return WorkFolder(path, lambda: "2026-12-01T00:00:00.000000Z", private)


def test_f27_a_failure_is_kept_without_what_is_private_and_an_answer_as_it_came(
    tmp_path: Path,
) -> None:
    log = answers_of(gated_spec(2), [True, True])
    wrote = an_answer(1, 0, right=True, text="open('/home/user/x')")
    log = replace(log, answers=(wrote, a_failure(1, 1, f"HTTP 500: {SAID}")))
    with work_folder(tmp_path) as work:
        work.keep_answers(1, log)
        work.journal.append("accuracy_end", repeat=1, part=1)
        kept = work.evidence().accuracy
    assert kept is not None
    assert kept.answers[0] == wrote
    assert kept.answers[1].failure is not None
    expect_nothing_private(iter([kept.answers[1].failure]))


def test_f27_a_model_s_files_are_kept_without_the_folder_they_were_in(tmp_path: Path) -> None:
    document = ModelDocument({"_name_or_path": "/home/alice/llama", "hidden_size": 8})
    with work_folder(tmp_path) as work:
        work.keep_model(document)
        work.keep_model(document)
        assert work.model() == ModelDocument({"_name_or_path": "~/llama", "hidden_size": 8})


def test_words_of_our_own_are_not_taken_for_the_name_of_a_machine(tmp_path: Path) -> None:
    private = Private(hosts=frozenset({"h200"}))
    with WorkFolder(tmp_path, lambda: "2026-12-01T00:00:00.000000Z", private) as work:
        line = work.journal.append("open", configuration="llama-4x-h200-vllm", tool="at h200")
    assert line.data["configuration"] == "llama-4x-h200-vllm"
