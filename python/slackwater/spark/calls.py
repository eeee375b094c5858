"""Calls of the driver over py4j, and the errors in which they end as errors of users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError

from slackwater.repr.errors import (
    LOG_FILE,
    SlackwaterError,
    TextPosition,
    first_line,
    user_error,
)
from slackwater.spark import python_errors

_log = structlog.get_logger("bridge")


def call(method: Any, *arguments: Any) -> Any:
    """The answer of the method. Raises what it threw as the error that users see."""
    try:
        return method(*arguments)
    except Py4JJavaError as error:
        raise error_of(error.java_exception) from None
    except Py4JError as error:
        raise user_error(
            "SLACKWATER_STORAGE_UNAVAILABLE", what="through Spark", reason=first_line(str(error))
        ) from None


MAX_RESULT_SIZE = "spark.driver.maxResultSize"

_FUNCTION_ERRORS = frozenset(
    {
        "java.util.IllegalFormatException",
        "java.util.regex.PatternSyntaxException",
        "java.time.DateTimeException",
        "java.lang.ArithmeticException",
        "java.lang.NumberFormatException",
    }
)
"""Exceptions of Java's libraries over values, which some of Spark's functions let through."""

_LIBRARIES = (
    "java.",
    "javax.",
    "jdk.",
    "sun.",
    "com.sun.",
    "scala.",
    "org.apache.commons.",
    "org.apache.spark.sql.errors.",
)
"""The prefixes of library classes: an error that they throw belongs to the class that called."""

_FUNCTIONS = (
    "org.apache.spark.sql.catalyst.expressions.",
    "org.apache.spark.sql.catalyst.util.",
    "org.apache.spark.unsafe.types.",
)
"""The prefixes of the classes of Spark's functions, and of the code generated for them."""


def error_of(exception: Any) -> SlackwaterError:
    """The user error in a Java exception.

    That is the innermost cause with a condition of Spark's, if it has a SQLSTATE, or else the error
    that a function threw over its arguments.
    """
    found = None
    causes = _causes(exception)
    for cause in causes:
        condition = _condition(cause)
        if condition is not None:
            found = (condition, cause)
    if found is None or found[1].getSqlState() is None:
        failed = next((cause for cause in reversed(causes) if _is_of_a_function(cause)), None)
        if failed is not None:
            reason = first_line(str(failed.toString())).removesuffix(".")
            return user_error("SLACKWATER_FUNCTION_FAILED", reason=reason)
    if found is None:
        limited = _of_limited_results(causes)
        if limited is not None:
            return limited
        ended = "java.lang.InterruptedException" in _class_names(causes[-1])
        log = _log.info if ended else _log.error
        log("call into the driver failed", error=str(exception.toString()))
        reason = first_line(str(exception.getMessage())).removesuffix(".")
        return user_error("SLACKWATER_INTERNAL", reason=reason, log=LOG_FILE)
    condition, cause = found
    state = cause.getSqlState() or "XX000"
    text = str(cause.getMessage()).removeprefix(f"[{condition}] ")
    message = text.rsplit(" SQLSTATE:", 1)[0]
    parameters = {str(k): str(v) for k, v in dict(cause.getMessageParameters() or {}).items()}
    if condition == python_errors.CONDITION:
        return _of_python(state, parameters.get("traceback", message))
    return SlackwaterError(condition, state, message, parameters)


def _of_limited_results(causes: list[Any]) -> SlackwaterError | None:
    """The error of a job whose tasks return more than the driver takes; None: it is another error.

    Spark says so in the text of the exception that ends the job, and nowhere else
    (`TaskSetManager.canFetchMoreResults`).
    """
    texts = (str(cause.getMessage()) for cause in causes)
    text = next((text for text in texts if MAX_RESULT_SIZE in text), None)
    if text is None:
        return None
    reason = first_line(text).rpartition("stage failure: ")[2]
    return user_error("SLACKWATER_RESULT_TOO_LARGE", reason=reason.removesuffix("."))


def _of_python(state: str, traceback: str) -> SlackwaterError:
    failure = python_errors.failure(traceback)
    reason = str(failure).removesuffix(".")
    if failure.is_of_values:
        message = f"A function of Python failed: {reason}."
        return SlackwaterError(python_errors.CONDITION, state, message, {})
    return user_error("SLACKWATER_PYTHON_UNAVAILABLE", reason=reason)


def _causes(exception: Any) -> list[Any]:
    """The exception and its causes, outermost first; at most 20, since causes may be a circle."""
    causes: list[Any] = []
    while exception is not None and len(causes) < 20:
        causes.append(exception)
        exception = exception.getCause()
    return causes


def _is_of_a_function(exception: Any) -> bool:
    """Whether one of Spark's functions threw it, so that the same arguments fail again."""
    names = _class_names(exception)
    if not _FUNCTION_ERRORS.isdisjoint(names):
        return True
    if "java.lang.RuntimeException" not in names:
        return False
    places = (str(frame.getClassName()) for frame in exception.getStackTrace())
    thrown_by = next((place for place in places if not place.startswith(_LIBRARIES)), "")
    return thrown_by.startswith(_FUNCTIONS)


def _class_names(exception: Any) -> list[str]:
    names = []
    kind = exception.getClass()
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return names


def _condition(exception: Any) -> str | None:
    try:
        value = exception.getCondition()
    except Py4JError:
        return None
    return None if value is None else str(value)


def error_from_json(error: Mapping[str, Any]) -> SlackwaterError:
    """The error that the protocol's JSON carries."""
    position = error.get("position")
    return SlackwaterError(
        error["condition"],
        error["sqlstate"],
        error["message"],
        error.get("parameters") or {},
        None if position is None else TextPosition(position["line"], position["column"]),
    )
