"""Build: `hot/` compiled by mypyc where a C compiler is found, the same source interpreted where not.

AEROBEE_COMPILE=0 leaves it interpreted, for the wheel that fits every Python. AEROBEE_COMPILE=1 fails without a
compiler.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup

# What a message passes through, beside hot/: the loops over messages and the objects they touch.
PATH = (
    "access/gate",
    "broker/log/arrivals",
    "broker/pop/ackrequests",
    "broker/pop/asked",
    "broker/pop/checks",
    "broker/pop/driver",
    "broker/pop/entries",
    "broker/pop/ledger",
    "broker/pop/records",
    "broker/pop/requests",
    "broker/pop/strings",
    "broker/pop/table",
    "broker/pop/tour",
    "broker/pop/window",
    "broker/topics/catalog",
    "broker/flowcontrol",
    "broker/pull/handler",
    "broker/pull/timing",
    "broker/rpctimes",
    "broker/send/handler",
    "broker/send/timing",
    "broker/offsets/rules",
    "broker/pull/rules",
    "broker/log/puts",
    "broker/stats",
    "broker/membership/subscriptions",
    "net/channel",
    "net/grpcserver",
    "net/link",
    "net/server",
    "protocol/connection",
    "protocol/grpc",
    "protocol/http2",
    "protocol/http2streams",
    "protocol/pulling",
    "protocol/sending",
    "proxy/delivered",
    "proxy/short",
    "replication/classic/acks",
    "replication/classic/frames",
    "replication/classic/incoming",
    "replication/classic/master",
    "replication/classic/outgoing",
    "replication/classic/replicated",
    "replication/classic/slavelink",
    "runtime/bases",
    "runtime/clock",
    "runtime/files",
    "store/commitlog",
    "store/dispatch",
    "store/filecache",
    "store/flush",
    "store/index",
    "store/messagestore",
    "store/queueflush",
    "store/queuerecovery",
    "store/queues",
    "store/reads",
)
# One compilation unit: calls between these modules become C calls.
COMPILED = sorted(str(p) for p in Path("src/aerobee/hot").glob("*/*.py") if p.name != "__init__.py")
COMPILED += [f"src/aerobee/{name}.py" for name in PATH]


def compiler_found() -> bool:
    return any(shutil.which(os.environ.get("CC", name)) for name in ("cc", "gcc", "clang", "cl"))


def extensions() -> list[object]:
    if os.environ.get("AEROBEE_PURE") or os.environ.get("AEROBEE_COMPILE") == "0" or not COMPILED:
        return []
    if not compiler_found():
        if os.environ.get("AEROBEE_COMPILE") == "1":
            raise SystemExit("aerobee: AEROBEE_COMPILE=1, but no C compiler is found")
        print("aerobee: no C compiler found, hot/ stays interpreted", file=sys.stderr)
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("aerobee: mypyc not installed, hot/ stays interpreted", file=sys.stderr)
        return []
    built = mypycify(COMPILED, opt_level="2", debug_level="0", group_name="aerobee_hot")
    if sys.platform == "linux":
        # All of it is one library that nobody else calls into: its functions call each other, and the interpreter,
        # without a detour through tables. A message that comes alone finds those cold (docs/decisions/0005).
        for extension in built:
            extension.extra_compile_args += ["-fvisibility=hidden", "-fno-plt"]
    return list(built)


setup(ext_modules=extensions())
