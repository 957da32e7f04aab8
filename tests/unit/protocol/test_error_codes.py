"""The one table of refusals covers every response code."""

import pytest

from aerobee.errors import BrokerError
from aerobee.errors.codes import REFUSALS, SystemBusyError, TopicNotExistError, error_for
from aerobee.protocol.codes import response_codes


def test_every_response_code_but_success_has_a_row() -> None:
    assert set(REFUSALS) == set(response_codes().values()) - {0}


def test_what_apaches_producer_retries_is_retriable() -> None:
    """RocketMQ: DefaultMQProducer.retryResponseCodes."""
    assert all(REFUSALS[code].retriable for code in (17, 14, 1, 2, 16, 204, 205, 1500))


@pytest.mark.parametrize(
    ("code", "exception", "retriable", "refresh"),
    [
        (2, SystemBusyError, True, False),
        (17, TopicNotExistError, True, True),
        (-77, BrokerError, False, False),
    ],
)
def test_an_error_carries_its_row(code: int, exception: type, retriable: bool, refresh: bool) -> None:
    error = error_for(code, "no route", "broker-a")
    assert type(error) is exception
    assert (error.code, error.retriable, error.refresh_route) == (code, retriable, refresh)
    assert str(error) == f"no route (code {code}) at broker-a"
    assert "without a reason" in str(error_for(code))
