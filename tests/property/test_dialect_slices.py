"""In slices or at once: the same values, the same bytes, the same refusals."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aerobee.model.dialect import (
    CONTAINERS_MAX,
    WHOLE_MAX,
    DialectError,
    Each,
    Items,
    dump_slices,
    dumps,
    loads,
    loads_slices,
    run_slices,
)

keys = st.one_of(st.text(max_size=8), st.integers(-(2**63), 2**63 - 1))
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=12))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=30,
)
PADDING = b" " * WHOLE_MAX


def lazily(value: Any) -> Any:
    if isinstance(value, dict):
        return Items((key, lazily(item)) for key, item in value.items())
    return Each(map(lazily, value)) if isinstance(value, list) else value


@given(st.dictionaries(keys, values, max_size=6))
def test_written_and_read_alike(value: dict[Any, Any]) -> None:
    text = dumps(value)
    assert run_slices(dump_slices(value)) == text
    assert run_slices(dump_slices(lazily(value))) == text
    assert run_slices(loads_slices(text + PADDING)) == loads(text)


@given(st.binary(max_size=40))
def test_refused_alike(text: bytes) -> None:
    try:
        found = loads(text)
    except DialectError:
        with pytest.raises(DialectError):
            run_slices(loads_slices(text + PADDING))
    else:
        assert run_slices(loads_slices(text + PADDING)) == found


def test_containers_are_counted() -> None:
    few, many = (b"[" + b"[]," * count + b"1]" for count in (CONTAINERS_MAX - 600, CONTAINERS_MAX + 600))
    assert len(run_slices(loads_slices(few))) == CONTAINERS_MAX - 599
    with pytest.raises(DialectError, match="objects and lists"):
        run_slices(loads_slices(many))


def test_many_slices_for_a_long_text() -> None:
    text = b"[" + b"1," * 50_000 + b"1]"
    assert sum(1 for _ in loads_slices(text)) > 50
    assert sum(1 for _ in dump_slices({"a": list(range(50_000))})) > 50
