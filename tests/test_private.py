from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.runs import small_spec
from tokenwatt_site.private import (
    SHAPES_ALONE,
    Private,
    fault,
    faults,
    hidden_host,
    host_of,
    without_host,
)
from tokenwatt_site.spec import parse_spec

SECRETS = [
    "hf_abcdefghijklmnopqrstuvwxyz",
    "sk-proj-abcdefghijklmnopqrst",
    "ghp_abcdefghijklmnopqrst",
    "gho_abcdefghijklmnopqrst",
    "github_pat_abcdefghijklmnopqrst",
    "glpat-abcdefghijklmnopqrst",
    "xoxb-123456789012-abcdefgh",
    "nvapi-abcdefghijklmnopqrst",
    "AKIAABCDEFGHIJKLMNOP",
    "Bearer abcdefghijk",
    "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----",
    "https://user:pass@host/path",
    "https://host/path?api_key=abcdef&more=1",
]

HOMES = [
    "/home/alice/models/llama",
    "/Users/alice/models",
    "/root/hub",
    "C:\\Users\\alice\\models",
    "d:/Users/alice",
    "/nfs/home/alice/run",
    "file:///home/alice/x",
    "--model=/home/alice/llama",
    "/usr/bin:/home/alice/bin",
    "-L/home/alice/lib",
    "'/home/alice/x'",
]

PLAIN = [
    "http://127.0.0.1:8000/v1",
    "./hf_models/smol",
    "models/llama/config.json",
    "https://example.org/home/page",
    "https://example.org/Users/guide",
    "~/models/home/x",
    "/opt/vllm/bin",
    "/homework/1",
    "/rootless",
    "the bearer of",
    "task-name=disk-cache-of-the-node",
    "sha256:" + "0123456789abcdef" * 4,
    "2026-12-01T12:00:00.000000Z",
]


@pytest.mark.parametrize("text", SECRETS)
def test_f27_a_secret_is_told_by_its_shape_and_scrubbed_whole(text: str) -> None:
    assert fault(f"it said {text} twice") == "looks like a secret"
    scrubbed = SHAPES_ALONE.text(f"it said {text} twice")
    assert scrubbed.startswith("it said ")
    assert scrubbed.endswith(" twice")
    assert fault(scrubbed) is None
    assert not set(scrubbed.split()) & set(text.replace("/", " ").split()) - {"it"}


@pytest.mark.parametrize("text", HOMES)
def test_f27_a_path_in_a_home_is_told_and_scrubbed_with_its_owner(text: str) -> None:
    assert "somebody's home" in (fault(text) or "")
    scrubbed = SHAPES_ALONE.text(text)
    assert fault(scrubbed) is None
    assert "alice" not in scrubbed
    assert "~" in scrubbed


@pytest.mark.parametrize("text", PLAIN)
def test_text_that_only_resembles_is_left_as_it_is(text: str) -> None:
    assert fault(text) is None
    assert SHAPES_ALONE.text(text) == text


@given(
    st.lists(
        st.sampled_from([*SECRETS, *HOMES, *PLAIN, " ", "=", ":", "/", "-", "a", "\n", "{"]),
        max_size=8,
    ).map("".join)
)
@example("x://a:b@/home/x")
def test_what_was_scrubbed_is_not_scrubbed_again(text: str) -> None:
    once = SHAPES_ALONE.text(text)
    assert fault(once) is None
    assert SHAPES_ALONE.text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "?key",
        "eyJ",
        "-eyJaaaaaaaa",
        "/a-L",
        "/home",
        "://a:",
        "bearer ",
        "C:\\Users\\",
        "hf_",
        "-----BEGIN A",
    ],
)
def test_f23_a_hostile_text_is_searched_in_linear_time(piece: str) -> None:
    took = []
    for size in (40_000, 320_000):
        text = piece * (size // len(piece))
        begun = time.process_time()
        fault(text)
        SHAPES_ALONE.text(text)
        took.append(time.process_time() - begun)
    # Eight times the text: a quadratic search would take 64 times as long.
    assert took[1] < 32 * max(took[0], 0.01)


def test_every_place_of_something_private_is_told_and_none_of_it_repeated() -> None:
    value: dict[str, Any] = {
        "a": [1, {"b": SECRETS[0]}],
        "c": HOMES[0],
        SECRETS[1]: "x",
        "fine": [None, True, 1.5],
    }
    told = list(faults(value, ""))
    assert [place for place, _ in told] == ["a.1.b", "c", "a key of the document"]
    assert "alice" not in str(told)
    assert SECRETS[0] not in str(told)


HOST = "gpu-node-17.corp.example"


def test_f27_names_of_machines_are_replaced_by_what_tells_two_apart() -> None:
    private = Private(hosts=frozenset({HOST, "10.2.3.4", "node9"}))
    told = private.text(f"http://{HOST}:9400 and 10.2.3.4:80 and node9.corp.example do not answer")
    names = [hidden_host(name) for name in (HOST, "10.2.3.4", "node9")]
    assert len(set(names)) == 3
    assert told == "http://{}:9400 and {}:80 and {} do not answer".format(*names)


def test_a_plain_word_is_a_machine_only_where_an_address_stands() -> None:
    private = Private(hosts=frozenset({"vllm"}))
    hidden = hidden_host("vllm")
    assert private.text("vllm 0.32 (vllm:steps) at http://vllm:8000, vllm:8000") == (
        f"vllm 0.32 (vllm:steps) at http://{hidden}:8000, {hidden}:8000"
    )


def test_known_secrets_are_scrubbed_whatever_their_shape() -> None:
    private = Private(secrets=frozenset({"correct horse", "correct horse battery"}))
    assert private.scrubbed({"a": ["say correct horse battery", 7, None]}) == {
        "a": ["say [secret]", 7, None]
    }


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "x.invalid"])
def test_the_loopback_says_nothing_and_stays(host: str) -> None:
    assert hidden_host(host) == host
    assert without_host(f"http://{host}:8000/v1") == f"http://{host}:8000/v1"


def test_only_the_host_of_a_url_is_hidden() -> None:
    hidden = without_host(f"https://{HOST}:8443/redfish/v1/Chassis/1")
    assert hidden == f"https://{hidden_host(HOST)}:8443/redfish/v1/Chassis/1"
    assert without_host(hidden) == hidden
    assert host_of("http://[fe80::1]:80/x") == "[fe80::1]"
    assert host_of("no address") is None


def test_a_spec_is_published_without_the_machines_it_asks() -> None:
    spec = small_spec(
        endpoint__start="attach",
        endpoint__url=f"https://{HOST}:8000",
        endpoint__restart=["ssh", HOST, "systemctl", "restart", "vllm"],
        instruments=[
            {"sensor": "dcgm", "url": f"http://{HOST}:9400/metrics"},
            {"sensor": "dcgm", "url": "http://10.2.3.4:9400/metrics"},
        ],
    )
    published = spec.published()
    assert HOST not in str(published.to_json())
    assert "10.2.3.4" not in str(published.to_json())
    assert parse_spec(published.to_json(), source="x") == published == published.published()
    assert published.configuration_id == spec.configuration_id
    assert (published.endpoint.url or "").startswith("https://host-")
    assert small_spec().published() == small_spec()
