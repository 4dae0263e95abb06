"""Addresses of tasks: `host:port`, and the map from the addresses that a program writes to those where tasks listen."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: the environment variable that holds an address map, or names the file with one
ADDRESS_MAP_VARIABLE: Final = "ANABRANCH_ADDRESS_MAP"

_MAX_PORT: Final = 65535
_MAX_HOST: Final = 253  # characters, as in DNS
_MAX_MAP_BYTES: Final = 1 << 20
_MAX_MAP_ENTRIES: Final = 10_000
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_SCHEME: Final = "grpc://"


@dataclass(frozen=True, order=True)
class Address:
    """Where a task listens.

    Attributes:
        host: a name, an IPv4 address, or an IPv6 address without brackets.
        port: 0 to 65535; 0 lets the system choose when the task starts.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of the same machine reach it: "localhost", 127.0.0.0/8, ::1."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """The address that `host:port` or `[ipv6]:port` states.

    Raises:
        ValueError: the text is neither, the host has more than 253 characters, or the port more than 16 bits.

    Example:
        >>> parse_address("ps0.example.com:2222")
        Address(host='ps0.example.com', port=2222)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > _MAX_PORT:
        raise ValueError(f"Address {_shown(text)} needs a port from 0 to {_MAX_PORT} after its last colon: 'host:port'")
    return Address(_host(host, text), int(port))


def address_of_target(target: str) -> Address:
    """The address in a session's target, such as "grpc://localhost:2222".

    Raises:
        ValueError: the target does not begin with grpc://, or its address is malformed.
    """
    if not target.startswith(_SCHEME):
        raise ValueError(f"Target {_shown(target)} names no task; write it like '{_SCHEME}localhost:2222'")
    return parse_address(target.removeprefix(_SCHEME))


def _host(host: str, text: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"Address {_shown(text)} has no IPv6 address between its brackets") from None
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError(
            f"Address {_shown(text)} needs a host name or an IP address before its port, such as 'ps0.example.com:2222'"
            " or '[::1]:2222'"
        )
    return host


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "…")


class AddressMap:
    """From written addresses to real ones, for programs that contain the addresses of another cluster.

    Args:
        entries: written -> real, both `host:port`; or both hosts alone, for all of their ports.

    Raises:
        ValueError: an address is malformed, or only one of the two has a port.
    """

    def __init__(self, entries: Mapping[str, str] | None = None) -> None:
        self._addresses: dict[Address, Address] = {}
        self._hosts: dict[str, str] = {}
        for written, real in (entries or {}).items():
            self._add(written, real)

    def __len__(self) -> int:
        return len(self._addresses) + len(self._hosts)

    def _add(self, written: str, real: str) -> None:
        if _has_port(written) != _has_port(real):
            raise ValueError(
                f"{_shown(f'{written} = {real}')} maps an address with a port to one without, or vice versa"
            )
        if _has_port(written):
            self._addresses[parse_address(written)] = parse_address(real)
        else:
            self._hosts[_host(written, written)] = _host(real, real)

    def real(self, written: Address) -> Address:
        """Where the task listens of which a program says that it listens at `written`.

        The whole address is looked up first, then its host; an address that the map does not have is real.
        """
        if written in self._addresses:
            return self._addresses[written]
        return Address(self._hosts.get(written.host, written.host), written.port)

    @classmethod
    def from_text(cls, text: str, where: str) -> AddressMap:
        """The map that lines, or items between commas, of the form `written = real` state; `#` begins a comment.

        Args:
            text: the map.
            where: what errors call its origin.

        Raises:
            ValueError: an item is malformed, an address is written twice, or the map has more than 10,000 entries.
        """
        entries: dict[str, str] = {}
        for number, item in _items(text):
            written, equals, real = (part.strip() for part in item.partition("="))
            if not (written and equals and real):
                raise ValueError(f"{where}, line {number}: {_shown(item)} is not of the form 'written = real'")
            if entries.setdefault(written, real) != real:
                raise ValueError(f"{where}, line {number}: {_shown(written)} is already mapped to {entries[written]!r}")
            if len(entries) > _MAX_MAP_ENTRIES:
                raise ValueError(f"{where} has more than {_MAX_MAP_ENTRIES} entries")
        try:
            return cls(entries)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _items(text: str) -> Iterator[tuple[int, str]]:
    """The number of its line, and the text of each item."""
    for number, line in enumerate(text.splitlines(), 1):
        for item in line.partition("#")[0].split(","):
            if item := item.strip():
                yield number, item


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]


def address_map_file(environ: Mapping[str, str]) -> str | None:
    """The file that holds the map; None where the variable holds it, or is not set.

    Args:
        environ: the environment. A value with "=" is a map, any other the path of a file.
    """
    value = environ.get(ADDRESS_MAP_VARIABLE, "").strip()
    return value if value and "=" not in value else None


def address_map(environ: Mapping[str, str]) -> AddressMap:
    """The map that the environment variable ANABRANCH_ADDRESS_MAP holds, or that is in the file that it names.

    Args:
        environ: the environment. A value with "=" is a map, any other the path of a file.

    Raises:
        ValueError: the map is malformed, or has more than 1 MB.
        OSError: the file cannot be read.

    Example:
        >>> found = address_map({"ANABRANCH_ADDRESS_MAP": "ps0.example.com:2222 = localhost:4000"})
        >>> str(found.real(parse_address("ps0.example.com:2222")))
        'localhost:4000'
    """
    path = address_map_file(environ)
    if path is None:
        text, where = environ.get(ADDRESS_MAP_VARIABLE, ""), ADDRESS_MAP_VARIABLE
    else:
        where = f"{ADDRESS_MAP_VARIABLE} ({path})"
        with Path(path).open("rb") as file:
            read = file.read(_MAX_MAP_BYTES + 1)
        if len(read) > _MAX_MAP_BYTES:
            raise ValueError(f"{where} has more than {_MAX_MAP_BYTES} bytes")
        try:
            text = read.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{where} is not text in UTF-8") from None
    return AddressMap.from_text(text, where)
