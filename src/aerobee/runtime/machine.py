"""What a server asks of its machine: the local hour, disk space, names and addresses, and a place for files."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import tempfile
import time

from aerobee.errors import InvalidArgumentError


def local_hour(now_ms: int) -> int:
    """Return the hour of the local day, 0 to 23."""
    return time.localtime(now_ms / 1000).tm_hour


def free_bytes(path: str) -> int:
    """Return the free bytes of the file system where the path is, or would be made."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path.rstrip("/"))
    return shutil.disk_usage(path or ".").free


def memory_bytes() -> int:
    """Return the machine's memory, or 0 if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def boot_id() -> str:
    """Return what differs after every start of the machine. Where the system does not say, it differs for every
    process, so that nobody takes a power cut for the end of a process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.urandom(16).hex()


def directory_number(path: str) -> int:
    """Return what the disk numbers a directory by, or 0 if there is none. It stays when the directory is moved on its
    disk, and a copy has another one."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def host_name() -> str:
    return socket.gethostname()


def resolve(host: str) -> str:
    """Return the address of a host, IPv4 before IPv6. An address is returned as it is."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgumentError(f"no address for {host!r}: {error.strerror or error}") from None
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return str(found[0][4][0]).partition("%")[0]


def make_temporary_directory(prefix: str) -> str:
    return tempfile.mkdtemp(prefix=prefix)


def remove_tree(path: str) -> None:
    """Remove a directory with everything in it. What cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)


def home_path(path: str) -> str:
    """Return an absolute path. A leading ~ is the user's home."""
    return os.path.abspath(os.path.expanduser(path))


def is_empty_directory(path: str) -> bool:
    """Return whether the directory is empty or does not exist."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except (FileNotFoundError, NotADirectoryError):
        return True


def read_whole(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
