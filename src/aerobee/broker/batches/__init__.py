"""Batches of a sink: rows held back until the batch is committed, and rows known by their key."""

from aerobee.broker.batches.driver import Batches
from aerobee.broker.batches.requests import BatchHandlers

__all__ = ["BatchHandlers", "Batches"]
