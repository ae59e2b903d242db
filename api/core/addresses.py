"""Which addresses the service may send to on somebody's word: public ones, unless the operator allows the rest.

Without this a webhook would be a way to reach what only this machine can: its own ports, the private network, a
cloud's metadata. The address that was checked is the one that is connected to, so that a name cannot change meanwhile.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from api.core.errors import Invalid

PORTS = {"http": 80, "https": 443}
MAX_URL = 2000
# Ways to write an IPv4 address as an IPv6 one: what is inside could be private.
EMBEDDING = [ipaddress.ip_network(net) for net in ("64:ff9b::/96", "2002::/16", "::/96")]


class Refused(Exception):
    """The target may not be reached, or its name leads nowhere."""


def check_url(url: str, *, allow_private: bool) -> SplitResult:
    """The parts of a target as it is written. Raises Invalid for one that can never be sent to."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"this is no URL: {error}", param="url") from error
    if parts.scheme not in PORTS or not parts.hostname or len(url) > MAX_URL or not url.isascii() or " " in url:
        raise Invalid("expected an http or https URL in ASCII, of 2000 characters at most", param="url")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Invalid(
            "a name, a password or a fragment cannot be in the URL; the signature proves who sends", param="url"
        )
    if port == 0:
        raise Invalid("port 0 cannot be sent to", param="url")
    literal = _literal(parts.hostname)
    is_local_name = parts.hostname.rstrip(".") == "localhost" or parts.hostname.endswith(".localhost")
    if not allow_private and (is_local_name or (literal is not None and not is_public(literal))):
        raise Invalid(_words(parts.hostname), code="target_private", param="url")
    return parts


def resolve(parts: SplitResult, *, allow_private: bool) -> str:
    """The IP address to connect to. Raises Refused when the name has none, or any that is not public."""
    host = parts.hostname or ""
    try:
        found = socket.getaddrinfo(host, parts.port or PORTS[parts.scheme], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refused(f"the name {host} was not found") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not allow_private and not is_public(ipaddress.ip_address(address.partition("%")[0])):
            raise Refused(_words(host))
    return addresses[0]


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in net for net in EMBEDDING):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a host is written as, also in the short and numeric ways that connecting takes: 127.1, 0x7f000001."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.ip_address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _words(host: str) -> str:
    return f"{host} is not a public address; the operator may allow such targets (webhook_private_targets)"
