"""Second names of files, where the file system has them."""

from __future__ import annotations

import errno
import os

_IMPOSSIBLE = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
)


def link_file(source: str, target: str) -> bool:
    """Give a file a second name. Return False where that is impossible, as between two file systems."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _IMPOSSIBLE:
            return False
        raise
    return True


def never_link(source: str, target: str) -> bool:
    """Return False: the file is to be copied."""
    return False
