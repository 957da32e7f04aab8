"""crc32 is zlib's, whichever library computes it."""

import importlib.util
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.hot.log import checksum
from aerobee.hot.log.checksum import crc32


@given(st.binary(max_size=5000), st.integers(0, 0xFFFFFFFF))
def test_the_sum_is_that_of_zlib(data: bytes, start: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(data, start) == zlib.crc32(data, start)


@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 13])
def test_the_sum_of_much_is_that_of_zlib(size: int) -> None:
    data = bytes(i * i % 251 for i in range(size))
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[7:]) == zlib.crc32(data[7:])


def test_without_the_fast_library_zlib_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    source = Path(checksum.__file__).parent / "checksum.py"
    spec = importlib.util.spec_from_file_location("checksum_without_isal", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.crc32 is zlib.crc32
