from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import UsageError
from tokenwatt_site.measure.credential import HIDDEN, Login, authorisation, hide

VARIABLE = "TOKENWATT_TEST_KEY"
KEY = "k3y-0123456789abcdef"


def test_no_variable_is_no_header_and_hides_nothing() -> None:
    assert authorisation(None) is None
    assert hide("text", None) == "text"


def test_the_header_holds_the_key_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    assert authorisation(VARIABLE) == f"Bearer {KEY}"


@pytest.mark.parametrize("value", [None, "", "two words", "line\r\nX: y", "schlüssel", "x" * 4097])
def test_a_variable_without_a_key_is_a_usage_error_that_names_it_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(UsageError, match=VARIABLE) as caught:
        authorisation(VARIABLE)
    assert not value or value not in str(caught.value)


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_key_in_a_text_is_hidden(before: str, after: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        assert KEY not in hide(before + KEY + after, VARIABLE)


@pytest.mark.parametrize("length", range(4, len(KEY)))
def test_a_key_that_was_cut_off_is_hidden_too(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    assert hide(f"wrong key {KEY[:length]}", VARIABLE) == f"wrong key {HIDDEN}"


def test_a_word_that_is_no_secret_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "EMPTY")
    assert hide("the list is EMPTY", VARIABLE) == "the list is EMPTY"


def test_a_login_is_the_header_of_basic_authentication_and_shows_only_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKENWATT_TEST_USER", "Aladdin")
    monkeypatch.setenv(VARIABLE, "open sesame")
    login = Login("TOKENWATT_TEST_USER", VARIABLE)

    # The example of RFC 7617.
    assert login.header() == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert "sesame" not in repr(login)


@pytest.mark.parametrize(
    ("user", "password", "named"),
    [
        (None, "p", "user_variable: TOKENWATT_TEST_USER: is not set"),
        ("u", None, f"password_variable: {VARIABLE}: is not set"),
        ("u", "", f"password_variable: {VARIABLE}: is not set"),
        ("a:b", "p", "user_variable: TOKENWATT_TEST_USER: holds no user that can be sent"),
        ("u", "se\ncret", f"password_variable: {VARIABLE}: holds no password that can be sent"),
    ],
)
def test_a_login_that_cannot_be_sent_names_the_variable_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch, user: str | None, password: str | None, named: str
) -> None:
    for variable, value in (("TOKENWATT_TEST_USER", user), (VARIABLE, password)):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)

    with pytest.raises(UsageError) as caught:
        Login("TOKENWATT_TEST_USER", VARIABLE).header()

    assert named in str(caught.value)
    assert "cret" not in str(caught.value)
    assert "a:b" not in str(caught.value)
