"""The field in the head of every page: leads to a topic, a group or a message by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aerobee.admin.messages import find_message
from aerobee.dashboard.blocks import Badge, Block, Note, PageLink, WebPage
from aerobee.dashboard.pages.messages import message_link
from aerobee.dashboard.pages.words import group_link, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.errors import AerobeeError

# The kinds of topics in the order in which somebody looks for them.
_ORDER: Final = {"normal": 0, "dlq": 1, "retry": 2, "system": 3}
_KINDS: Final = {"dlq": "dead letters"}
_ID: Final = re.compile(r"[0-9A-Fa-f]{32}")


@page("/find", title="Find")
async def find(view: PageView) -> WebPage:
    word = view.word("q")
    snapshot = view.data.snapshot
    if not word:
        return WebPage("Find", [Note("how", "Type a part of the name of a topic or group, or the id of a message.")])
    small = word.lower()
    topics = [(one.topic, one.kind) for one in snapshot.topics.values() if small in one.topic.lower()]
    groups = [
        (one.name, "system" if one.is_system else "normal")
        for one in snapshot.groups.values()
        if small in one.name.lower()
    ]
    blocks: list[Block] = []
    if _ID.fullmatch(word):
        blocks.append(await _message(view, word))
    blocks += [
        table_of(
            _sorted(topics), _listing("topics", "Topics", f"No topic contains “{word}”."), view.query, alone=False
        ),
        table_of(
            _sorted(groups), _listing("groups", "Groups", f"No group contains “{word}”."), view.query, alone=False
        ),
    ]
    return WebPage(f"Find {word}", blocks, snapshot.problems)


def _sorted(found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return names in the order of their kinds. Names that begin alike are together, whatever their case."""
    return sorted(found, key=lambda one: (_ORDER.get(one[1], 9), one[0].lower()))


async def _message(view: PageView, word: str) -> Block:
    """Return the link to the message with an offset id, or where the unique id can be asked for."""
    try:
        link = message_link(await find_message(view.admin, word, unfold=False))
        return Note("message", "This is the offset id of a message:", "good", [link])
    except AerobeeError:
        words = "No message has this offset id. If it is a unique id, name its topic:"
        return Note("message", words, links=[PageLink("Messages", "/messages", {"by": "id", "value": word})])


def _listing(name: str, title: str, empty: str) -> Listing[tuple[str, str]]:
    link = topic_link if name == "topics" else group_link
    return Listing(
        name,
        title,
        [
            Column("name", "Name", lambda one: link(one[0]), lambda one: one[0].lower()),
            Column("kind", "Kind", lambda one: Badge(_KINDS.get(one[1], one[1])), lambda one: _ORDER.get(one[1], 9)),
        ],
        empty,
    )
