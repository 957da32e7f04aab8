"""What the settings' page promises is done: a setting is read somewhere, or says that it has no effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.config.setting import Settings, settings_of
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.store.config import StoreConfig

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every attribute that is read, and every text that may name one."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        found.update(re.findall(r'(?<=[."])[a-z_0-9]+\b', path.read_text()))
    return found


@pytest.mark.parametrize("cls", [BrokerConfig, StoreConfig, NamesrvConfig, TlsConfig])
def test_every_setting_is_read_or_says_why_not(cls: type[Settings], words: set[str]) -> None:
    unread = [one.java for one in settings_of(cls) if one.effect is None and one.name not in words]
    assert unread == []


@pytest.mark.parametrize("cls", [BrokerConfig, StoreConfig, NamesrvConfig, TlsConfig])
def test_what_has_no_effect_cannot_be_changed_while_running(cls: type[Settings]) -> None:
    assert [one.java for one in settings_of(cls) if one.effect is not None and one.reloadable] == []
