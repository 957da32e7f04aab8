"""The field in the head of every page: leads to a topic, a group or a message by its name."""

from __future__ import annotations

from aerobee.admin.messages import find_message
from aerobee.dashboard.blocks import Block, Note, PageLink, WebPage
from aerobee.dashboard.pages.messages import message_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.errors import AerobeeError

_MOST = 200


@page("/find", title="Find")
async def find(view: PageView) -> WebPage:
    word = view.word("q")
    snapshot = view.data.snapshot
    if not word:
        return WebPage("Find", [Note("how", "Type a part of the name of a topic or group, or the id of a message.")])
    small = word.lower()
    topics = [PageLink(name, f"/topics/{name}") for name in snapshot.topics if small in name.lower()][:_MOST]
    groups = [PageLink(name, f"/groups/{name}") for name in snapshot.groups if small in name.lower()][:_MOST]
    messages: list[PageLink] = []
    if len(word) == 32:
        try:
            messages = [message_link(await find_message(view.admin, word, unfold=False))]
        except AerobeeError:
            messages = []
    blocks: list[Block] = [
        table_of(links, _links(name, title, empty), {"size": str(_MOST)}, alone=False)
        for name, title, links, empty in (
            ("topics", "Topics", topics, f"No topic contains “{word}”."),
            ("groups", "Groups", groups, f"No group contains “{word}”."),
            ("messages", "Messages", messages,
             "No message has this offset id. To find one by its unique id, name its topic on the page of messages."),
        )
    ]  # fmt: skip
    return WebPage(f"Find {word}", blocks)


def _links(name: str, title: str, empty: str) -> Listing[PageLink]:
    return Listing(name, title, [Column("name", "Name", lambda link: link)], empty)
