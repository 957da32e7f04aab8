"""The documents are consistent: links lead somewhere, named files exist, and the page for users of 4.x is true."""

import re
from pathlib import Path

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.config.setting import settings_of
from aerobee.namesrv.config import NamesrvConfig
from aerobee.store.config import StoreConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md"))
    # docs/config.md is generated, and links to nothing.
    if path.name != "config.md" or path.parent.name == "formats"
)
# A page that another change brings.
COMING: set[str] = set()


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", text):
        found = page.parent / target if target else page
        if found.name in COMING and not found.exists():
            continue
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/formats/README.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    for path in re.findall(r"`((?:\w+/)+[\w.]+\.(?:py|md))[`:]", (ROOT / page).read_text()):
        assert (ROOT / path).exists() or (ROOT / "src" / "aerobee" / path).exists(), path


def test_the_page_for_users_of_4x_tells_our_defaults() -> None:
    ours = {
        one.java: str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
        for settings in (NamesrvConfig, BrokerConfig, StoreConfig)
        for one in settings_of(settings)
    }
    text = (ROOT / "docs" / "coming-from-rocketmq-4.md").read_text()
    table = text.split("## Defaults of the broker")[1].split("## Defaults of the client")[0]
    rows = re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| `(\w+)` \|", table, re.MULTILINE)
    assert len(rows) >= 10
    for key, told in rows:
        assert ours[key] == told, key
