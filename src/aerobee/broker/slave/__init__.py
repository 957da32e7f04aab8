"""What a slave copies from its master besides the log: topics, groups, offsets, delay progress, request modes."""

from aerobee.broker.slave.copying import MasterTables, read_master
from aerobee.broker.slave.synchroniser import SlaveSync

__all__ = ["MasterTables", "SlaveSync", "read_master"]
