"""Where webhooks may go: nowhere that only this machine can reach."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.core import addresses
from api.core.addresses import Refused, check_url, resolve
from api.core.errors import Invalid

PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "localhost",
    "localhost.",
    "a.localhost",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fd00::1]",
    "[ff02::1]",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_targets_are_refused_however_written(host: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_url(f"http://{host}:8000/x", allow_private=False)
    assert caught.value.param == "url"
    assert check_url(f"http://{host}:8000/x", allow_private=True).port == 8000


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com",
        "http://",
        "http:///x",
        "http://user:password@example.com/",
        "http://user@example.com/",
        "http://example.com/#part",
        "http://example.com:99999/",
        "http://example.com:0/",
        "http://exämple.com/",
        "http://[::1/",
        "http://example.com/ x",
        "http://example.com/" + "a" * 2000,
        "http://example.com\r\nX: y/",
    ],
)
def test_what_is_no_target_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_url(url, allow_private=True)
    assert caught.value.param == "url"


def test_public_targets_are_taken() -> None:
    for url in ("https://example.com/hook?a=b", "http://93.184.216.34/", "https://[2606:4700::1]:8443/"):
        assert check_url(url, allow_private=False).hostname


def answer_with(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    def look_up(*_args: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in found]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", look_up)


def test_a_name_is_judged_by_every_address_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit("https://hooks.example.com/")
    answer_with(monkeypatch, "93.184.216.34")
    assert resolve(parts, allow_private=False) == "93.184.216.34"
    answer_with(monkeypatch, "93.184.216.34", "127.0.0.1")
    with pytest.raises(Refused):
        resolve(parts, allow_private=False)
    answer_with(monkeypatch, "169.254.169.254")
    with pytest.raises(Refused):
        resolve(parts, allow_private=False)
    assert resolve(parts, allow_private=True) == "169.254.169.254"


def test_a_name_that_is_not_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", fail)
    with pytest.raises(Refused, match="not found"):
        resolve(urlsplit("https://nowhere.example/"), allow_private=False)
