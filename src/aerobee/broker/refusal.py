"""Why a request is refused: the response code and the text for people."""

from __future__ import annotations

from dataclasses import dataclass

# RocketMQ: FAQUrl. Apache's clients print the remark, and people search for its words.
FAQ = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than success. `forbidden_type` goes into the header of a refused pull."""

    code: int
    remark: str
    forbidden_type: int | None = None


def filters_are_off(expression_type: str) -> str:
    """Return the remark of a broker that serves tags only: Apache's words, and the setting that changes it."""
    return (
        f"The broker does not support consumer to filter message by {expression_type}: "
        "it runs with enablePropertyFilter=false, set that to true"
    )


def see_faq(text: str) -> str:
    """Return a text that ends with the address of Apache's FAQ. RocketMQ: FAQUrl.suggestTodo."""
    return f"{text}\nSee {FAQ} for further details."
