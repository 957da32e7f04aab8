"""What a process may run short of, and get back: descriptors, memory, space.

Owns the one rule that tells a refusal from damage. A call refused for a shortage has changed nothing, so it may be
tried again and ends nothing; a sync or a write that failed half way is another matter, and never asked about here.
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

# Too many open files of this process, of the machine; no memory.
_PASSING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def is_passing(error: BaseException | None) -> bool:
    """Return whether a call was refused for lack of descriptors, memory or space, and may succeed when tried later."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in _PASSING)


def raise_descriptor_limit() -> int | None:
    """Raise what this process may have open to what the system allows it; return that, None where nothing limits it."""
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS names no hard limit and refuses to be taken at its word: then the soft one stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptor_limit()


def descriptor_limit() -> int | None:
    """Return how many files this process may have open, None where nothing limits it."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def descriptors_in_use() -> int:
    """Return how many files this process has open; 0 where the system does not say."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0
