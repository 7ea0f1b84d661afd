"""Where users' code is called."""

from __future__ import annotations

from dstl_core.errors import StorageError, UserFunctionError


class user_code:
    """Names the function and the method in whatever a user's code raises."""

    __slots__ = ("_function", "_method")

    def __init__(self, function: object, method: str) -> None:
        self._function = function
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # What storage refuses is nothing that the function did.
        if isinstance(error, Exception) and not isinstance(error, StorageError):
            name = f"{type(self._function).__name__}.{self._method}"
            raise UserFunctionError(
                f"The function {name} raised {type(error).__name__}: {error}"
            ) from error
