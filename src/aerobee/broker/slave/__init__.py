"""What a slave copies from its master besides the log: topics, groups, offsets, delays, request modes, users."""

from aerobee.broker.slave.copying import MasterTables, read_master
from aerobee.broker.slave.synchroniser import SlaveSync
from aerobee.broker.slave.users import UserSync

__all__ = ["MasterTables", "SlaveSync", "UserSync", "read_master"]
