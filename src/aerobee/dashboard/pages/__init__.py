"""The pages. Importing them fills the tables of the registry; their order here is that of the menu."""

from aerobee.dashboard.pages import (
    access,
    audit,
    brokers,
    deadletters,
    find,
    groupchanges,
    groups,
    members,
    messages,
    overview,
    replicas,
    spark,
    tail,
    topicchanges,
    topics,
    waiting,
)

__all__ = [
    "access",
    "audit",
    "brokers",
    "deadletters",
    "find",
    "groupchanges",
    "groups",
    "members",
    "messages",
    "overview",
    "replicas",
    "spark",
    "tail",
    "topicchanges",
    "topics",
    "waiting",
]
