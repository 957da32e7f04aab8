from pathlib import Path

import pytest

from aerobee.runtime.logfile import LogFile, rolling_writer

LINE = "x" * 1023 + "\n"


def test_a_full_file_is_renamed_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.log"
    with rolling_writer(LogFile(str(path), size_mib=1, kept=2)) as write:
        for _ in range(4 * 1024):
            write(LINE)
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(one.stat().st_size <= 1 << 20 for one in path.parent.iterdir())
    assert path.read_text().startswith(LINE)


def test_a_restart_goes_on_with_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    for word in ("first", "second"):
        with rolling_writer(LogFile(str(path))) as write:
            write(f"{word}\n")
    assert path.read_text() == "first\nsecond\n"


def test_a_line_that_cannot_be_written_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rolling_writer(LogFile("/dev/full")) as write:
        write("lost\n")
    assert capsys.readouterr().err == "lost\n"


def test_each_process_has_a_file_of_its_own() -> None:
    assert LogFile("logs/up.log", 5, 3).beside("broker-a") == LogFile("logs/up-broker-a.log", 5, 3)
