"""The demo measures what its spec declares, or nothing."""

import pytest

from tests.conftest import ROOT
from tokenwatt_site.commands import demo
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.embedded import EmbeddedIdentity


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"engine_version": "1.0"}, r"setup\.engine\.build"),
        ({"model_version": "1.0"}, r"setup\.model\.revision"),
        ({"model_sha256": "0" * 64}, r"setup\.model\.digest"),
    ],
)
def test_another_engine_or_model_than_the_spec_declares_is_refused(other, field, monkeypatch):
    declared = demo.read_spec(ROOT / "specs" / demo.SPEC).setup
    installed = {
        "engine_version": declared.engine.build.split()[-1],
        "model_version": declared.model.revision.split()[-1],
        "model_sha256": declared.model.digest.removeprefix("sha256:"),
    }
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(demo.embedded, "identity", lambda: EmbeddedIdentity(**(installed | other)))
    with pytest.raises(EnvironmentProblem, match=f"{field}: is not what is installed"):
        demo.demonstrate(demo.Events(lambda _: None, lambda _: None))
