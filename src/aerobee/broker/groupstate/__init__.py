"""The state of a replicated group that is not in messages, journalled in the log: topics, groups, offsets, locks."""

from aerobee.broker.groupstate.journal import StateJournal
from aerobee.broker.groupstate.sections import Sections

__all__ = ["Sections", "StateJournal"]
