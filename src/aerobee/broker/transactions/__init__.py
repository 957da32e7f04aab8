"""Transactions: half messages, their ends, and questions about those without an end."""

from aerobee.broker.transactions.copies import prepare_half
from aerobee.broker.transactions.driver import Transactions
from aerobee.broker.transactions.halves import Half
from aerobee.broker.transactions.requests import TransactionHandler

__all__ = ["Half", "TransactionHandler", "Transactions", "prepare_half"]
