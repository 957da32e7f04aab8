"""The types of offsets: one NewType for each kind of position."""

from typing import NewType

# A byte position in the commit log, counted from the first record ever written.
PhysicalOffset = NewType("PhysicalOffset", int)
# The number of a message within its queue.
QueueOffset = NewType("QueueOffset", int)
