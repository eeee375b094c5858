"""The trial of a connection: its steps within a deadline, and an error that names the one."""

from __future__ import annotations

from slackwater.adapter.external.trials import aws, iceberg, kafka, postgres, registry, ssh
from slackwater.adapter.external.trials.steps import Deadline, StepFailed
from slackwater.repr.errors import user_error
from slackwater.storage.access import (
    AwsAccess,
    IcebergAccess,
    PostgresAccess,
    RegistryAccess,
    SshAccess,
)
from slackwater.storage.kafka.access import KafkaAccess

Access = KafkaAccess | RegistryAccess | PostgresAccess | AwsAccess | IcebergAccess | SshAccess
DEADLINE_S = 9.5
"""A client that is given up takes a moment, and ten seconds are promised."""


def validate(name: str, access: Access) -> None:
    """Tries the name, TCP, TLS, the login and the permission of the connection `name`.

    Of an SSH tunnel the host key is tried, which others have TLS for.

    Raises SLACKWATER_CONNECTION_FAILED with the step that failed, within ten seconds and
    without values of secrets; and SLACKWATER_CONNECTOR_MISSING.
    """
    deadline = Deadline.after(DEADLINE_S)
    try:
        match access:
            case KafkaAccess():
                kafka.validate(access, deadline)
            case RegistryAccess():
                registry.validate(access, deadline)
            case PostgresAccess():
                postgres.validate(access, deadline)
            case AwsAccess():
                aws.validate(access, deadline)
            case IcebergAccess():
                iceberg.validate(access, deadline)
            case SshAccess():
                ssh.validate(access, deadline)
    except StepFailed as failed:
        raise user_error(
            "SLACKWATER_CONNECTION_FAILED",
            objectName=name,
            step=failed.step,
            address=failed.address,
            reason=access.scrubbed(failed.reason).rstrip("."),
        ) from None
