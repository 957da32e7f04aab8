"""`aerobee mqadmin SUBCOMMAND`: Apache's command lines and Apache's text, for scripts that were written for mqadmin.

The sub-commands are in the tables of the modules beside this one. Those that have no twin here are in `elsewhere`.
"""

from __future__ import annotations

from aerobee.cli.mqadmin.command import mqadmin

__all__ = ["mqadmin"]
