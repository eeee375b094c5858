"""AWS: who one is there, and the temporary keys of a role.

Source: docs/decisions 0083.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slackwater.adapter.external import libraries
from slackwater.storage.access import AwsAccess

ROLE_S = 3600
"""Temporary keys are valid so long; each role allows it."""
RENEWED_MS = ROLE_S * 1000 // 2
"""Another version of the access comes at least so often, and keys are asked for anew."""
REGION = "us-east-1"
_SESSION = "slackwater"
_LIMITS = {"connect_timeout": 5, "read_timeout": 10, "retries": {"total_max_attempts": 2}}


class RoleRefused(OSError):
    """The keys of a role could not be had."""


def token_client(boto3: Any, access: AwsAccess, config: Any) -> Any:
    """A client of the service that says who one is, and gives keys of roles."""
    return service_client(boto3, "sts", access, access.endpoint, config)


def service_client(
    boto3: Any, service: str, access: AwsAccess, endpoint: str | None, config: Any
) -> Any:
    """A client of a service, which is at its own address unless `endpoint` says another."""
    return boto3.client(
        service,
        region_name=access.region or REGION,
        endpoint_url=endpoint,
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=access.secret_access_key,
        aws_session_token=access.session_token,
        config=config,
    )


def assume(client: Any, access: AwsAccess, seconds: int) -> Any:
    """The answer with the keys of the role of the access, which are valid so long."""
    return client.assume_role(
        RoleArn=access.role,
        RoleSessionName=access.role_session or _SESSION,
        DurationSeconds=seconds,
    )


def in_role(access: AwsAccess) -> AwsAccess:
    """The access with keys of its role in the place of its own; as it is without a role.

    Raises `RoleRefused`, and SLACKWATER_CONNECTOR_MISSING.
    """
    if access.role is None:
        return access
    boto3, botocore = libraries.boto()
    errors = botocore.exceptions
    client = token_client(boto3, access, botocore.config.Config(**_LIMITS))
    try:
        keys = assume(client, access, ROLE_S)["Credentials"]
    except (errors.ClientError, errors.BotoCoreError) as error:
        raise RoleRefused(f"the role {access.role} is not given: {error}") from None
    finally:
        client.close()
    secret, token = keys["SecretAccessKey"], keys["SessionToken"]
    return replace(
        access,
        access_key_id=keys["AccessKeyId"],
        secret_access_key=secret,
        session_token=token,
        role=None,
        role_session=None,
        secrets=(*access.secrets, secret, token),
    )
