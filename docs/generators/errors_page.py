"""The reference page of all error conditions: ``python -m docs.generators.errors_page``."""

from __future__ import annotations

from slackwater.repr.errors import conditions

_HEAD = """# Errors

This page is generated from the error catalogue by `python -m docs.generators.errors_page`.

An error has a condition, an SQLSTATE and a message that names the object, says what is wrong and
what to do. In PySpark they are `e.getCondition()`, `e.getSqlState()` and `e.getMessage()`; the
shells and JDBC show all three in the message. Where Spark itself finds the error, its condition
and its SQLSTATE stay as they are.

| condition | SQLSTATE | message |
|---|---|---|
"""


def page() -> str:
    """The page as Markdown, ending with a newline."""
    lines = []
    for name, entry in sorted(conditions().items()):
        message = " ".join(entry["message"]).replace("|", "\\|")
        text = message.replace("<", "&lt;").replace(">", "&gt;")
        lines.append(f"| `{name}` | {entry['sqlState']} | {text} |")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
