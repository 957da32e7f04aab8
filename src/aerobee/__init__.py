"""Aerobee: RocketMQ in Python."""

from aerobee import _pure

_pure.install_if_asked()

__version__ = "0.1.0"
