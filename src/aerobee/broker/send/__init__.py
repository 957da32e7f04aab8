"""Sends: from a frame to a draft in the log, and the answer."""

from aerobee.broker.send.handler import SendAnswers, SendHandler
from aerobee.broker.send.marks import learn_marks, learn_sent
from aerobee.broker.send.reply import ReplyHandler
from aerobee.broker.send.special import SpecialSends
from aerobee.broker.send.timing import send_answers

__all__ = ["ReplyHandler", "SendAnswers", "SendHandler", "SpecialSends", "learn_marks", "learn_sent", "send_answers"]
