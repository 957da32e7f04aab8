"""Users. The password is the secret of their signatures, so it is kept as it is. RocketMQ: User."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeVar

from aerobee.access.refusal import invalid

E = TypeVar("E", bound=enum.Enum)

NAME_LENGTH_MAX: Final = 120
PASSWORD_LENGTH_MAX: Final = 1024


class UserType(enum.Enum):
    """A Super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether the user can log in."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """One user. `repr` does not show the password."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Tell whether no right is asked of this user."""
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Tell whether this user can log in."""
        return self.status is UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """Return the name under which policies know the user."""
        return subject_of(self.name)


def subject_of(name: str) -> str:
    """Return the subject of a user's policies."""
    return f"User:{name}"


def name_of(subject: str) -> str:
    """Return the user of a subject such as `User:alice`. Raise AccessRefusedError for any other kind of subject."""
    kind, colon, name = subject.partition(":")
    if kind.lower() != "user" or not colon or not name.strip():
        raise invalid(f"The subject {subject[:NAME_LENGTH_MAX]!r} is not of the form User:name.")
    return name


def user_problem(name: str, password: str) -> str | None:
    """Return why a user cannot have this name and password, or None."""
    if not name.strip():
        return "The username is blank"
    if len(name) > NAME_LENGTH_MAX or not name.isprintable() or name != name.strip() or "," in name or "/" in name:
        return (
            f"The username {name[:40]!r} is not allowed: at most {NAME_LENGTH_MAX} printable characters, no comma, no "
            "slash, no blank at its ends"
        )
    if not password.strip():
        return "password can not be blank"
    if len(password) > PASSWORD_LENGTH_MAX or not password.isprintable():
        return f"the password is not allowed: at most {PASSWORD_LENGTH_MAX} printable characters"
    return None


def named(kind: type[E], text: str | None, default: E) -> E:
    """Return the member that Apache names by this text, in any case; an absent text gives the default."""
    if text is None or not text.strip():
        return default
    for member in kind:
        if str(member.value).lower() == text.strip().lower():
            return member
    allowed = ", ".join(str(member.value) for member in kind)
    raise invalid(f"{text[:40]!r} is not one of {allowed}")
