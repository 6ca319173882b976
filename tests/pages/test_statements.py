from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.pages.test_report import HOSTILE, Parsed
from tests.support.runs import RunBuilder, a_key, keyring_of
from tests.support.statements import run_id_of, state
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.eligibility import reasons
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages import facts, ranking, report, statements
from tokenwatt_site.pages.catalogue import catalogue
from tokenwatt_site.pages.page import NO_LINKS, Links
from tokenwatt_site.statistics import Ratio, against
from tokenwatt_site.trust.keyring import Keyring, KeyState
from tokenwatt_site.trust.predicates import Kind
from tokenwatt_site.trust.statement import parse
from tokenwatt_site.trust.verify import verify_run

Stated = Callable[..., Configuration]


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Stated:
    """Give a function from (kind, key) and what is said to a run of Lab 1 with it beside."""

    def made(
        *told: tuple[Kind, int, dict[str, Any]], known: bool = True, settled_by: int | None = None
    ) -> Configuration:
        folder = tmp_path_factory.mktemp("run")
        path = RunBuilder(simulated=False).write(folder)
        for kind, seed, said in told:
            beside = state(path, kind, a_key(seed), **said)
        if settled_by is not None:
            dispute = parse(beside.read_bytes().split(b"\n")[0], "a dispute").digest
            state(path, "settled", a_key(settled_by), dispute=dispute)
        keys = [a_key(seed) for seed in (1, 2, 3)] if known else []
        keyring = keyring_of(folder / "keys", *keys) if keys else Keyring()
        return group([verify_run(path, root=folder, keyring=keyring)])[0]

    return made


def html(configuration: Configuration) -> str:
    return report.render(configuration, NO_LINKS).html


def fact(configuration: Configuration, name: str) -> facts.Fact:
    found = facts.facts(configuration)
    return next(f for f in found if f.id == name)


def with_key(configuration: Configuration, state: KeyState, text: str) -> Configuration:
    """The same, whose key is in another state: no signed run."""
    headline = copy(configuration.headline)
    key = replace(headline.standing.key, state=state, text=text)
    object.__setattr__(headline, "standing", replace(headline.standing, key=key))
    exclusions = reasons(headline, configuration.reference)
    return replace(configuration, headline=headline, runs=(headline,), exclusions=exclusions)


def with_ratios(configuration: Configuration, *ratios: Ratio) -> Configuration:
    """The same, whose statements all count, as reproductions that came to these ratios."""
    headline = copy(configuration.headline)
    told = tuple(
        replace(each, why_not=None, ratio=ratio)
        for each, ratio in zip(headline.standing.told, ratios, strict=True)
    )
    object.__setattr__(headline, "standing", replace(headline.standing, told=told))
    return replace(configuration, headline=headline, runs=(headline,))


def test_a_run_of_which_nothing_is_stated_has_no_such_section(stated: Stated) -> None:
    page = report.render(stated(), NO_LINKS)
    assert 'id="statements"' not in page.html
    assert "statements" not in dict(page.toc)
    assert "<s>" not in page.html
    assert fact(stated(), "witnessed").label == "Time not witnessed"


def test_every_statement_is_listed_and_says_whether_it_counts(stated: Stated) -> None:
    configuration = stated(
        ("disputed", 2, {"url": "https://example.org/1"}), ("countersigned", 9, {})
    )
    dispute, stranger = statements.rows(configuration)
    assert (dispute.kind, dispute.by, dispute.counts) == ("disputed", "Lab 2", "yes")
    assert dispute.says == "too fast for its clocks"
    assert stranger.by.startswith("unknown key ed25519:")
    assert stranger.counts == "its key is not registered"
    page = report.render(configuration, NO_LINKS)
    assert page.toc[-1] == ("statements", "Statements")
    section = page.html[page.html.index('id="statements"') :]
    assert "no: its key is not registered" in section
    assert '<a href="https://example.org/1" rel="nofollow noopener ugc">discussion</a>' in section


@pytest.mark.parametrize(("more", "words"), [(1, "1 more, by keys"), (1234, "1,234 more, by keys")])
def test_statements_of_strangers_that_are_too_many_are_counted(
    stated: Stated, more: int, words: str
) -> None:
    configuration = stated(("countersigned", 9, {}))
    assert " more, by keys" not in html(configuration)
    headline = copy(configuration.headline)
    object.__setattr__(headline, "standing", replace(headline.standing, unheard=more))
    page = html(replace(configuration, headline=headline, runs=(headline,)))
    assert f"{words} that are not registered, {'is' if more == 1 else 'are'} not listed" in page


def test_a_run_that_was_taken_back_is_struck_through_and_keeps_its_numbers(
    stated: Stated,
) -> None:
    configuration = stated(("withdrawn", 1, {}))
    page = html(configuration)
    assert f"<h1><s>{configuration.title}</s></h1>" in page
    assert 'class="tw-strip tw-struck"' in page
    assert "<b>Withdrawn.</b> Lab 1, 2026-02-01 10:00: the driver was another one." in page
    assert next(iter(facts.facts(configuration))).label == "Withdrawn"
    named = {configuration.id: configuration}
    listed = catalogue(rank([configuration]), named, {configuration.id: "x"})
    board = ranking.render(listed, (), ()).html
    assert f"<s>{configuration.title}</s>" in board
    assert "<li>withdrawn: 1</li>" in board
    assert "withdrawn by its publisher: the driver was another one" in board


def test_a_dispute_is_said_on_top_and_bars_with_its_words(stated: Stated) -> None:
    configuration = stated(("disputed", 2, {}))
    page = html(configuration)
    assert "<b>Disputed.</b> Lab 2, 2026-02-01 10:00: too fast for its clocks." in page
    assert "<s>" not in page
    assert fact(configuration, "disputed").kind == "warn"
    assert "disputed by Lab 2: too fast for its clocks" in fact(configuration, "rank").does


def test_a_dispute_that_was_settled_is_history_and_no_bar(stated: Stated) -> None:
    configuration = stated(("disputed", 2, {}), settled_by=2)
    page = html(configuration)
    assert "<b>Disputed.</b>" not in page
    settled = fact(configuration, "settled")
    assert (settled.kind, settled.label) == ("no", "Dispute settled")
    assert settled.does == "Lab 2 took it back: it was the cable."
    assert "disputed" not in fact(configuration, "rank").does
    counts = {row.kind: row.counts for row in statements.rows(configuration)}
    assert counts == {"disputed": "its signer settled it: it was the cable", "settled": "yes"}
    assert statements.marks(configuration.headline) == ()


def test_the_witness_and_who_recomputed_are_named(stated: Stated) -> None:
    numbers = stated().headline.numbers
    of_all = {"numbers": numbers}
    configuration = stated(("countersigned", 2, {}), ("recomputed", 3, of_all))
    witnessed = fact(configuration, "witnessed")
    assert (witnessed.label, witnessed.kind) == ("Witnessed 2026-02-01", "yes")
    assert "Lab 2 countersigned this run" in witnessed.does
    assert fact(configuration, "recomputed").does.endswith("So they did for Lab 3.")


@pytest.mark.parametrize("said", [{"numbers": 0}, {"level": "data"}])
def test_nobody_is_named_for_more_numbers_than_they_recomputed(
    stated: Stated, said: dict[str, Any]
) -> None:
    numbers = stated().headline.numbers
    configuration = stated(("recomputed", 3, {"numbers": numbers} | said))
    assert "So they did" not in fact(configuration, "recomputed").does


@pytest.mark.parametrize(
    ("key", "label", "kind", "notice"),
    [
        ("known", "Signed by Lab 1", "yes", ""),
        (
            "expired",
            "Signed by Lab 1, key expired",
            "warn",
            "<b>Key expired.</b> It counts no more",
        ),
        (
            "revoked",
            "Signed by Lab 1, key revoked",
            "warn",
            "<b>Key revoked.</b> It counts no more",
        ),
        ("revoked later", "Signed by Lab 1, key revoked later", "warn", ""),
    ],
)
def test_f19_the_state_of_a_key_is_shown_as_it_is(
    stated: Stated, key: KeyState, label: str, kind: str, notice: str
) -> None:
    configuration = with_key(stated(), key, "counts no more")
    signed = fact(configuration, "signed")
    assert (signed.label, signed.kind) == (label, kind)
    assert "which counts no more." in signed.does
    page = html(configuration)
    assert notice in page
    assert ("<b>Key " in page) == bool(notice)
    barred = [e.text for e in configuration.exclusions if e.code == "key"]
    assert barred == (
        [f"the signing key {configuration.headline.keyid} counts no more"] if notice else []
    )
    assert statements.marks(configuration.headline) == (() if key == "known" else (f"key {key}",))


def test_reproductions_by_others_are_counted_with_their_ratio(stated: Stated) -> None:
    configuration = stated(
        ("reproduced", 2, {"run": "b" * 64}),
        ("reproduced", 3, {"run": "c" * 64, "made": "2026-02-02T00:00:00Z"}),
    )
    assert fact(configuration, "reproduced").label == "Not reproduced"
    two = with_ratios(configuration, Ratio(0.99, 0.975, 1.0), Ratio(1.01, 0.98, 1.02))
    found = fact(two, "reproduced")
    assert found.label == "Reproduced 2× by others, ratio 1.000 [0.975, 1.020]"
    assert found.kind == "yes"
    assert "Lab 2: run bbbbbbbbbbbb reproduced, ratio 0.990 [0.975, 1.000]; Lab 3" in found.does


def test_a_contradiction_is_no_reproduction(stated: Stated) -> None:
    contradicted = stated(("reproduced", 2, {"run": "b" * 64, "outcome": "contradicted"}))
    ratio = against([2250, 2262, 2241], [2410, 2431, 2397, 2440, 2422])
    found = fact(with_ratios(contradicted, ratio), "reproduced")
    assert (found.label, found.kind) == (
        "Contradicted 1× by others, ratio 0.930 [0.923, 0.938]",
        "warn",
    )


def test_without_an_interval_none_is_made_up(stated: Stated) -> None:
    configuration = stated(
        ("reproduced", 2, {"outcome": "inconclusive"}),
        ("reproduced", 3, {"outcome": "inconclusive"}),
    )
    two = with_ratios(configuration, Ratio(0.9, None, None), Ratio(1.0, 0.98, 1.02))
    assert fact(two, "reproduced").label == ("Inconclusive 2× by others, ratio 0.949, no interval")


def test_statements_that_cannot_be_read_are_said_to_be_left_out(tmp_path: Any) -> None:
    path = RunBuilder().write(tmp_path)
    path.with_name("run.att.jsonl").write_bytes(b"garbage\n")
    run = verify_run(path, root=tmp_path, keyring=Keyring())
    assert "<b>Left out.</b> What failed verification in 1 file of statements" in html(
        group([run])[0]
    )


def test_a_superseded_run_names_the_one_that_took_its_place(tmp_path: Any) -> None:
    old = RunBuilder(day=1).write(tmp_path / "old")
    new = RunBuilder(day=2).write(tmp_path / "new")
    state(old, "superseded", a_key(), by=run_id_of(new), reason="a warmer room")
    keyring = Keyring()
    runs = [verify_run(path, root=tmp_path, keyring=keyring) for path in (old, new)]
    (configuration,) = group(runs)
    assert configuration.headline.path == new
    page = html(configuration)
    assert "<h1><s>" not in page
    assert 'class="tw-struck"' in page
    assert '<span class="tw-tag">superseded</span>' in page
    assert f"by run {run_id_of(new)[:12]}: a warmer room" in page


def test_f5_words_of_a_statement_are_shown_as_text(stated: Stated) -> None:
    page = html(stated(("disputed", 2, {"reason": HOSTILE}), ("withdrawn", 1, {"reason": HOSTILE})))
    parsed = Parsed(page)
    assert not [tag for tag, _ in parsed.tags if tag in {"img", "script"}]
    assert not [a for _, a in parsed.tags if (a.get("href") or "").startswith("javascript")]
    assert parsed.text.count(HOSTILE) >= 4


def test_the_file_of_statements_is_linked_where_there_is_one(stated: Stated) -> None:
    for configuration, there in ((stated(), False), (stated(("disputed", 2, {})), True)):
        run_id = configuration.headline.run_id
        links = Links(None, None, None, {run_id: "../runs/x"})
        page = report.render(configuration, links).html
        assert ('href="../runs/x/run.att.jsonl"' in page) == there
