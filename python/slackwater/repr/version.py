"""The version of this program."""

VERSION = "0.1.0"

MZ_VERSION = f"v{VERSION} (slackwater)"
"""The same in the form of `mz_version`."""
