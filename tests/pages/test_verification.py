"""What the checker's page says and its scripts are given, without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.runs import a_key, keyring_of
from tokenwatt_site.pages import verification
from tokenwatt_site.pages.page import asset
from tokenwatt_site.trust import verify
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.workload import NAMED


def carried(keyring: Keyring) -> Any:
    text = verification.data(keyring)
    return json.loads(text.removeprefix("globalThis.TokenwattVerifyData = ").rstrip(";\n"))


def test_the_checks_have_the_numbers_of_trust_verify_and_each_says_what_it_does_not_show() -> None:
    numbered = re.findall(r"^ ?(\d+)\. ", verify.__doc__ or "", re.MULTILINE)
    assert [check.number for check in verification.CHECKS] == list(map(int, numbered))
    assert all(check.shows and check.does_not for check in verification.CHECKS)
    html = verification.render("assets").html
    for check in verification.CHECKS:
        assert f'id="check-{check.number}"' in html
    assert "no file can show that a measurement took place" in html


def test_what_only_the_builder_checks_is_named_with_private_text_and_read_back() -> None:
    told = {check.number: check.builder for check in verification.CHECKS}
    assert all("looks private" in told[number] for number in (5, 6, 7))
    assert "(read-back) is what the spec declares" in told[7]
    html = verification.render("assets").html
    assert html.count("Not here, by the builder") == sum(map(bool, told.values()))


def test_the_scripts_know_the_register_as_the_builder_does(tmp_path: Path) -> None:
    keyring = keyring_of(tmp_path, a_key(1), a_key(2))
    keys = carried(keyring)["keys"]
    assert {keyid: key["name"] for keyid, key in keys.items()} == {
        keyid: key.name for keyid, key in keyring.keys.items()
    }
    assert carried(Keyring())["keys"] == {}


def test_the_scripts_are_given_every_named_workload_and_its_chosen_windows() -> None:
    given = carried(Keyring())
    assert given["workloads"] == {w.name: w.hash for w in NAMED.values()}
    bands = given["chosen"]["chat-mix-v1"]["bands"]
    assert all(len(band["first_rows"]) >= 5 for band in bands)


def test_the_page_and_the_control_load_the_same_scripts_after_their_data() -> None:
    html = verification.render("assets").html
    loaded = re.findall(r'<script src="assets/([^"]+)" defer>', html)
    assert loaded == [verification.DATA, *verification.SCRIPTS]
    control = verification.control("../assets", "a" * 64, "../runs/a")
    assert control is not None
    assert control.scripts == tuple(f"../assets/{name}" for name in loaded)
    assert all(asset(name) for name in verification.SCRIPTS)


def test_there_is_no_control_where_the_run_or_the_scripts_are_not_beside_a_report() -> None:
    assert verification.control(None, "a" * 64, "../runs/a") is None
    assert verification.control("../assets", "a" * 64, None) is None
