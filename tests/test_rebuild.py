"""A rebuild verifies and makes what changed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import RunBuilder, small_spec
from tests.support.site import build_site, make_project
from tokenwatt_site.cache import Cache


def test_a_rebuild_keeps_what_follows_from_the_run_that_is_new_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_project(tmp_path)
    RunBuilder().write(runs / "one")
    build_site(tmp_path)
    kept: list[str] = []
    keep = Cache.keep

    def keeping(cache: Cache, key: str, data: bytes) -> None:
        kept.append(cache._ending)
        keep(cache, key, data)

    monkeypatch.setattr(Cache, "keep", keeping)
    RunBuilder(spec=small_spec(setup__driver="other"), day=2).write(runs / "two")
    build_site(tmp_path)
    assert kept.count(".run") == 1
    # Its report, JSON-LD, page, badge, what lists tell of it, and its result for programs and for
    # comparisons; and the report of the other, which now stands next to it.
    assert kept.count(".page") == 8
    kept.clear()
    build_site(tmp_path)
    assert kept == []
