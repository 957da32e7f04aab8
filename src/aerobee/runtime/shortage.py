"""What a process may run short of, and get back: descriptors, memory and disk space.

This module has the one rule that tells a refusal from damage. A call that was refused for a shortage has changed
nothing, so it may be tried again. A sync or a write that failed half way is another matter and is not asked about
here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Final

from aerobee.errors import DiskFullError

if sys.platform != "win32":
    import resource

# Too many open files of this process or of the machine, or no memory.
_PASSING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def is_passing(error: BaseException | None) -> bool:
    """Return whether a call was refused for lack of descriptors, memory or space, and may succeed when tried later."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in _PASSING)


def raise_descriptor_limit() -> int | None:
    """Raise the number of files that this process may have open to what the system allows. Return it, or None if
    nothing limits it."""
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS reports no hard limit but refuses to set none. The soft limit stays then.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptor_limit()


def descriptor_limit() -> int | None:
    """Return how many files this process may have open, or None if nothing limits it."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def descriptors_in_use() -> int:
    """Return how many files this process has open, or 0 if the system does not say."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0
