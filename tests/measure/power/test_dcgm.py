from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.measure.stub_engine import StubEngine, endless, hanging, serving
from tests.support.exporter import Exporter, exporting
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.power import PowerSample
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.instruments import merged_boards
from tokenwatt_site.measure.power import dcgm
from tokenwatt_site.measure.power.dcgm import DcgmMeter, ExporterUnavailable
from tokenwatt_site.measure.power.meter import PowerMeter

S = 1_000_000_000


def scrape(*boards: tuple[str, float | None, int | None], **gauges: float) -> str:
    """Return the text of an exporter with boards of (UUID, watts, millijoules)."""
    text = ""
    for place, (uuid, watts, energy_mj) in enumerate(boards):
        labels = f'gpu="{place}",UUID="{uuid}",modelName="NVIDIA H200",'
        labels += 'DCGM_FI_DRIVER_VERSION="595.91.07"'
        rows = {"POWER_USAGE": watts, "TOTAL_ENERGY_CONSUMPTION": energy_mj} | gauges
        for family, value in rows.items():
            if value is not None:
                text += f"DCGM_FI_DEV_{family}{{{labels}}} {value}\n"
    return text


class Script:
    """An exporter in memory, and the time: each `read` is a second after the one before."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.now_ns = 0
        self.meter = DcgmMeter("http://test/metrics", get=lambda _: self.text.encode())

    def read(self, text: str | None = None) -> tuple[PowerSample, ...]:
        self.text = self.text if text is None else text
        self.now_ns += S
        return self.meter.read(lambda: self.now_ns)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    with exporting(tmp_path_factory.mktemp("exporter"), scrape(("GPU-1", 300.0, 1000))) as one:
        yield one


@pytest.fixture
def exporter(running: Exporter, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    monkeypatch.setattr(dcgm, "_DEADLINE_S", 30.0)  # of a machine that does much else
    running.say(scrape(("GPU-1", 300.0, 1000)))
    return running


def test_boards_are_read_from_a_real_exporter(exporter: Exporter) -> None:
    exporter.say(scrape(("GPU-1", 300.0, 1000), ("GPU-2", 310.0, 2000)))
    meter: PowerMeter = DcgmMeter(exporter.url)
    assert [board.uuid for board in meter.boards()] == ["GPU-1", "GPU-2"]
    assert (meter.sensor, meter.scope, meter.driver) == ("dcgm", "gpu", "595.91.07")
    times = iter([10 * S, 12 * S])
    exporter.say(scrape(("GPU-2", 320.0, 2320), ("GPU-1", 305.0, 1305), SM_CLOCK=1980))
    assert meter.read(lambda: next(times)) == (
        PowerSample(11 * S, 0, 305_000, 1305, sm_mhz=1980),
        PowerSample(11 * S, 1, 320_000, 2320, sm_mhz=1980),
    )
    meter.close()


def test_a_redirect_is_not_followed(exporter: Exporter) -> None:
    with pytest.raises(ExporterUnavailable, match="the exporter answers HTTP 302"):
        DcgmMeter(exporter.url.replace("/metrics", "/moved"))


def test_another_page_is_no_exporter(exporter: Exporter) -> None:
    with pytest.raises(ExporterUnavailable, match="the exporter answers HTTP 404"):
        DcgmMeter(exporter.url.replace("/metrics", "/"))
    exporter.say("<html></html>\n")
    with pytest.raises(ExporterUnavailable, match=r"no power of a board.*address of the metrics"):
        DcgmMeter(exporter.url)


def test_nobody_there_is_said_without_the_address() -> None:
    url = f"http://127.0.0.1:{free_port()}/metrics"
    with pytest.raises(ExporterUnavailable, match="the exporter does not answer") as caught:
        DcgmMeter(url)
    assert "127.0.0.1" not in str(caught.value)
    assert "engine" not in str(caught.value)


@pytest.mark.parametrize("raw", [hanging, endless])
def test_an_answer_without_an_end_is_none(
    monkeypatch: pytest.MonkeyPatch, raw: Callable[..., Iterator[bytes]]
) -> None:
    monkeypatch.setattr(dcgm, "_DEADLINE_S", 0.5)
    with (
        serving(StubEngine(raw={"/metrics": raw})) as url,
        pytest.raises(ExporterUnavailable, match="the exporter does not answer: the answer"),
    ):
        DcgmMeter(f"{url}/metrics")


def test_what_is_no_text_is_no_metrics() -> None:
    with pytest.raises(ExporterUnavailable, match="no metrics: the exporter: is no UTF-8"):
        DcgmMeter("http://test/metrics", get=lambda _: b"\xff")


def test_a_reading_is_kept_when_it_is_new_and_stamped_when_it_is_seen() -> None:
    script = Script(scrape(("GPU-1", 300.0, 1000)))
    assert script.read() == ()  # nobody knows how old it is
    assert script.read() == ()
    assert script.read(scrape(("GPU-1", 310.0, 1900))) == (PowerSample(3 * S, 0, 310_000, 1900),)
    assert script.read() == ()
    # The same watts, and the counter went on: read anew.
    assert script.read(scrape(("GPU-1", 310.0, 2500))) == (PowerSample(5 * S, 0, 310_000, 2500),)


def test_an_exporter_that_refreshes_every_30_s_leaves_gaps_of_30_s() -> None:
    script = Script(scrape(("GPU-1", 300.0, 0)))
    samples = []
    for second in range(1, 151):
        refreshed = (second + 11) // 30
        samples += script.read(scrape(("GPU-1", 300.0, 9_000_000 * (refreshed + 1))))
    assert [sample.at_ns // S for sample in samples[1:]] == [19 + 30 * n for n in range(5)]


def test_a_counter_that_stands_while_power_moves_is_no_new_counter() -> None:
    script = Script(scrape(("GPU-1", 300.0, 1000)))
    assert script.read(scrape(("GPU-1", 320.0, 1000))) == (PowerSample(S, 0, 320_000, None),)
    # A clock alone shows no refresh of the counter.
    assert script.read(scrape(("GPU-1", 320.0, 1000), SM_CLOCK=1980)) == ()


def test_without_a_counter_any_change_shows_a_refresh() -> None:
    script = Script(scrape(("GPU-1", 300.0, None), GPU_TEMP=50))
    assert script.read() == ()
    script.read(scrape(("GPU-1", 300.0, None), GPU_TEMP=51))
    assert script.read(scrape(("GPU-1", 300.0, None), GPU_TEMP=52)) == (
        PowerSample(3 * S, 0, 300_000, None, celsius=52),
    )


def test_b8_a_counter_that_runs_backwards_is_kept_as_it_is() -> None:
    script = Script(scrape(("GPU-1", 300.0, 5000)))
    assert script.read(scrape(("GPU-1", 300.0, 20)))[0].energy_mj == 20


def test_b5_a_board_that_goes_is_missing_and_one_that_comes_is_none_of_ours() -> None:
    script = Script(scrape(("GPU-1", 300.0, 1000), ("GPU-2", 300.0, 1000)))
    assert script.read(scrape(("GPU-2", 301.0, 1300), ("GPU-3", 90.0, 10))) == (
        PowerSample(S, 0, None, None),
        PowerSample(S, 1, 301_000, 1300),
    )
    # Back again: its age is unknown until it changes.
    assert script.read(scrape(("GPU-1", 300.0, 1500), ("GPU-2", 301.0, 1300))) == ()
    assert script.read(scrape(("GPU-1", 300.0, 1800), ("GPU-2", 301.0, 1300))) == (
        PowerSample(3 * S, 0, 300_000, 1800),
    )


def test_a_scrape_that_fails_says_so_and_the_next_has_no_known_age() -> None:
    script = Script(scrape(("GPU-1", 300.0, 1000)))
    with pytest.raises(ExporterUnavailable, match="no power of a board"):
        script.read("")
    script.text = scrape(("GPU-1", 300.0, 2000))
    assert script.read() == ()
    assert len(script.read(scrape(("GPU-1", 300.0, 3000)))) == 1


def test_a_scrape_that_is_no_text_is_an_error() -> None:
    good = scrape(("GPU-1", 1.0, 1)).encode()
    meter = DcgmMeter("http://test", get=_answers(good, b"\xff"))
    with pytest.raises(InputError, match="is no UTF-8"):
        meter.read(lambda: 0)


def _answers(*bodies: bytes) -> Callable[[str], bytes]:
    left = iter(bodies)
    return lambda _: next(left)


def test_b14_values_that_are_none_are_named() -> None:
    script = Script(scrape(("GPU-1", 300.0, 1000)))
    assert script.meter.notes == ()
    (sample,) = script.read(scrape(("GPU-1", 0.0, 1300), GPU_TEMP=500))
    assert (sample.power_mw, sample.energy_mj, sample.celsius) == (None, 1300, None)
    (note,) = script.meter.notes
    assert note.startswith("dcgm-exporter gave values that are no reading")
    assert note.endswith("DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_USAGE")


def test_b2_a_board_in_mig_mode_has_no_watts_for_an_engine(test_data: Path) -> None:
    body = (test_data / "prometheus" / "dcgm_a100_mig_active.prom").read_bytes()
    with pytest.raises(ExporterUnavailable, match=r"in MIG mode.*GPU-7099682b"):
        DcgmMeter("http://test/metrics", get=lambda _: body)


def test_b2_two_exporters_of_the_same_boards_count_them_once(test_data: Path) -> None:
    # Two exporters, on ports 9400 and 9402, that both report the one board of a machine.
    file = test_data / "peer-results" / "aiperf_qwen_concurrency1_gpu_telemetry_export.jsonl"
    texts: dict[str, str] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        said = row["telemetry_data"]
        board = (row["gpu_uuid"], said["gpu_power_usage"], round(said["energy_consumption"] * 1e9))
        texts.setdefault(row["dcgm_url"], scrape(board))
    assert len(texts) == 2
    meters = [DcgmMeter("http://test", get=_answers(text.encode())) for text in texts.values()]
    boards = [meter.boards() for meter in meters]
    assert [board.uuid for board in boards[0]] == ["GPU-ef6ef310-f8e2-cef9-036e-8f12d59b5ffc"]
    assert boards[0] == boards[1]
    assert [board.uuid for board in merged_boards(meters)] == [boards[0][0].uuid]


MASKED = "GPU-00000000-0000-0000-0000-000000000000"


def test_boards_of_one_uuid_cannot_be_told_apart() -> None:
    text = scrape((MASKED, 300.0, 1000), (MASKED, 310.0, 2000))
    with pytest.raises(ExporterUnavailable, match="cannot be told apart"):
        DcgmMeter("http://test", get=lambda _: text.encode())
