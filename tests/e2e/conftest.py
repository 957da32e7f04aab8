"""Fixtures of tests that run `aerobee up`: the running command, and a gRPC client of its broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from aerobee.testing.commands import Up, up
from aerobee.testing.grpckit import GrpcPeer

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Up]:
    """Return `aerobee up` with the words that the module's UP_WORDS names (by default none)."""
    with up(*getattr(request.module, "UP_WORDS", ())) as one:
        yield one


@pytest.fixture
def peer(running: Up) -> Iterator[GrpcPeer]:
    """Return a gRPC client with an id of its own."""
    with GrpcPeer(running.ready["grpc"], f"peer@{next(_numbers)}") as one:
        yield one
