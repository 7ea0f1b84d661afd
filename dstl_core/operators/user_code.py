"""Calls code of users."""

from __future__ import annotations

from dstl_core.errors import StorageError, UserFunctionError


class user_code:
    """Wraps errors of a user's code in ``UserFunctionError``, which names function and method."""

    __slots__ = ("_function", "_method")

    def __init__(self, function: object, method: str) -> None:
        self._function = function
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # An error of storage is not an error of the function.
        if isinstance(error, Exception) and not isinstance(error, StorageError):
            raise user_error(self._function, self._method, error) from error


def user_error(function: object, method: str, error: Exception) -> UserFunctionError:
    """The error for one that a method of a user's function raised; it names the method."""
    name = f"{type(function).__name__}.{method}"
    return UserFunctionError(f"The function {name} raised {type(error).__name__}: {error}")
