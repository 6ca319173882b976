"""The scripts of the checker without their page: runs go in as bytes, what they tell comes out."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tokenwatt_site.pages import verification
from tokenwatt_site.pages.page import asset
from tokenwatt_site.trust.keyring import Keyring

_UNPACK = """
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
"""

VERIFY = (
    """async ([run, evidence, runId, replayed]) => {"""
    + _UNPACK
    + """
  const fetched = async entry => entry.path in evidence ? bytes(evidence[entry.path]) : null;
  const source = {bytes: bytes(run), runId, fetch: fetched};
  const report = await TokenwattVerify.verify(source, TokenwattVerifyData, async () => {});
  const told = {...report, run: undefined, made: report.run.derived && report.run.derived.made};
  globalThis.lastReport = report;
  if (replayed) { told.replay = await TokenwattVerify.replay(report, async () => {}); }
  return told;
}"""
)


def open_checker(chromium: Browser, folder: Path, keyring: Keyring | None = None) -> Page:
    """Open an empty page on disk, where browsers let scripts use their cryptography."""
    (folder / "empty.html").write_text("<!doctype html><title>empty</title>", encoding="utf-8")
    page = chromium.new_page()
    page.goto((folder / "empty.html").as_uri())
    page.add_script_tag(content=verification.data(keyring or Keyring()))
    for name in verification.SCRIPTS:
        page.add_script_tag(content=asset(name))
    return page


def checked(
    page: Page, path: Path, *, run_id: str | None = None, replay: bool = False, **instead: bytes
) -> dict[str, Any]:
    """Return what the checker tells of a run file and the evidence beside it.

    Args:
        page: of `open_checker`.
        path: the run file.
        run_id: what the run's id should be.
        replay: whether the engine model is played too.
        instead: packed bytes in the place of a piece of evidence, by its role.
    """
    document = json.loads(path.read_bytes())
    evidence = {}
    for entry in document["evidence"]:
        packed = instead.get(entry["role"])
        if packed is None and (path.parent / entry["path"]).is_file():
            packed = (path.parent / entry["path"]).read_bytes()
        if packed is not None:
            evidence[entry["path"]] = base64.b64encode(packed).decode()
    run = base64.b64encode(path.read_bytes()).decode()
    found: dict[str, Any] = page.evaluate(VERIFY, [run, evidence, run_id, replay])
    return found


def failed_at(report: dict[str, Any]) -> tuple[int, str] | None:
    """Return the number and the words of the check that failed; None: none did."""
    last = report["checks"][-1]
    return (last["number"], last["text"]) if last["outcome"] == "failed" else None
