from __future__ import annotations

from tests.pages.conftest import Make, told
from tests.support.runs import replica_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import replicas, report, run_page
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.run import ReplicaClaim

FIRST = ReplicaClaim(
    number=1,
    version="0.32.0",
    requests=1200,
    percent=50.04,
    failed=3,
    ttft_p99_ms=812.4,
    tpot_p99_ms=31.25,
)


def test_every_replica_has_a_row(demo: Configuration) -> None:
    few = {"number": 2, "requests": 12, "version": None, "ttft_p99_ms": None, "tpot_p99_ms": None}
    second = FIRST.model_copy(update=few)
    table = replicas.table(told(demo, replicas=(FIRST, second)).claims)
    assert table is not None
    assert table[1][0] == ("1", "50.0", "1,200", "3", "812", "31.2", "0.32.0")
    assert table[1][1][4:] == ("needs 100 requests", "needs 100 requests", "not told")


def test_a_quantile_that_falls_on_failures_is_not_for_want_of_requests(demo: Configuration) -> None:
    failed = FIRST.model_copy(update={"failed": 90, "ttft_p99_ms": None, "percent": None})
    table = replicas.table(told(demo, replicas=(failed,)).claims)
    assert table is not None
    assert table[1][0][1] == "–"
    assert table[1][0][4] == "undefined, or beyond what was seen to end"


def test_where_one_address_was_asked_there_is_no_table(demo: Configuration) -> None:
    assert replicas.table(demo.claims) is None


def test_report_and_run_page_have_the_table_and_the_report_says_how_it_was_asked(
    make: Make, demo: Configuration
) -> None:
    several = make(spec=replica_spec(2))
    page = report.render(several, NO_LINKS).html
    run = run_page.render(several, NO_LINKS, several.headline.run_id, "../report.html", None).html
    assert page.count("Replica by replica") == run.count("Replica by replica") == 2
    assert "requests in turn to 2 replicas" in page
    alone = report.render(demo, NO_LINKS).html
    assert "Replica by replica" not in alone
    assert "requests in turn" not in alone
