"""The limit of open files, of a process that is not this one."""

import resource

import pytest

from tokenwatt_site.measure.descriptors import allow

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "left"),
    [
        (10, 100, 50, 50),
        (10, NONE, 50, 50),
        (10, 50, 50, 50),
        (10, 49, 49, 49),
        (50, 100, 50, 50),
        (60, 100, 60, 60),
        (49, 49, 49, 49),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_is_needed_and_allowed(
    monkeypatch, soft, hard, allowed, left
):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: limits.append(values))
    assert allow(50) == allowed
    assert limits[-1] == (left, hard)


def test_without_a_limit_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (NONE, NONE))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("changed"))
    assert allow(50) >= 50
