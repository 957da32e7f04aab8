"""The pages. Importing them fills the tables of the registry; their order here is that of the menu."""

from aerobee.dashboard.pages import (
    audit,
    brokers,
    find,
    groups,
    messages,
    overview,
    topicchanges,
    topics,
)

__all__ = ["audit", "brokers", "find", "groups", "messages", "overview", "topicchanges", "topics"]
