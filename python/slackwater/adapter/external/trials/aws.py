"""AWS, tried by a question for who one is."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from slackwater.adapter.external import libraries
from slackwater.adapter.external.aws import assume, token_client
from slackwater.adapter.external.trials.reaching import reached
from slackwater.adapter.external.trials.steps import Deadline, Step, StepFailed, Target
from slackwater.storage.access import AwsAccess, Tls

_PORTS = {"http": 80, "https": 443}
_LOGIN_S = 7.0
"""Two for keys that the SDK looks for, and what its limits below add up to."""
_ROLE_S = 900
_PERMISSIONS = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})


def validate(access: AwsAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING."""
    boto3, botocore = libraries.boto()
    limits = {"connect_timeout": 2, "read_timeout": 3, "retries": {"total_max_attempts": 1}}
    client = token_client(boto3, access, botocore.config.Config(**limits))
    endpoint = urlsplit(client.meta.endpoint_url)
    target = Target(endpoint.hostname or "", endpoint.port or _PORTS[endpoint.scheme])
    tls = Tls() if endpoint.scheme == "https" else None
    reached(target, tls, deadline.earlier(_LOGIN_S)).close()
    errors = botocore.exceptions
    try:
        _ask(client, access)
    except errors.ClientError as refused:
        error = refused.response.get("Error", {})
        code, text = str(error.get("Code", "")), str(error.get("Message", ""))
        raise StepFailed(step_of(code), target.address, f"{code}: {text}") from None
    except errors.BotoCoreError as failed:
        raise StepFailed("login", target.address, str(failed)) from None
    finally:
        client.close()


def step_of(code: str) -> Step:
    """The step that failed when AWS answered with that code."""
    return "permission" if code in _PERMISSIONS else "login"


def _ask(client: Any, access: AwsAccess) -> None:
    if access.role is None:
        client.get_caller_identity()
    else:
        assume(client, access, _ROLE_S)
