"""Catalogs of pyiceberg: those of each type, with limits of time, and the errors of all.

Source: docs/decisions 0077, 0107.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import sqlalchemy.engine
import sqlalchemy.exc

from slackwater.adapter.external import libraries
from slackwater.adapter.external.aws import REGION, in_role, service_client
from slackwater.adapter.external.iceberg_requests import ANSWER_S, CONNECT_S, rest_catalog
from slackwater.storage.access import AwsAccess, IcebergAccess

NEW_CATALOG = "default"
"""The name of a catalog in a database that names none: the one that pyiceberg takes."""
METASTORE_PORT = 9083
"""The port of a metastore of Hive whose URL has none."""


def opened(library: Any, access: IcebergAccess, aws: AwsAccess | None) -> Any:
    """The catalog to which a connection leads, with keys of the role of `aws` if it has one.

    `aws` None: files are where the catalog is. Raises what `failures` lists, and
    SLACKWATER_CONNECTOR_MISSING.
    """
    # Not by `load_catalog`: that takes settings out of the process's variables and files, too.
    own = in_role(access.aws or AwsAccess())
    files = own if aws is None else in_role(aws)
    name, properties = access.catalog_name or NEW_CATALOG, catalog_properties(access, files)
    match access.catalog_type:
        case "rest":
            return rest_catalog(library, name, properties)
        case "s3tablesrest":
            libraries.boto()
            return rest_catalog(library, name, properties | _signed(own))
        case "hive":
            return _hive_catalog(name, properties)
        case "glue":
            return _glue_catalog(name, properties, own, access.url)
        case _:
            return library.catalog.load_sql(name, properties)


def catalog_properties(access: IcebergAccess, aws: AwsAccess | None) -> dict[str, str]:
    """The settings of pyiceberg for a connection, and for one to where the files are.

    A role is none of them: Arrow takes it or keys, and asks AWS alone.
    """
    found: dict[str, str | None] = {"type": access.catalog_type, "warehouse": access.warehouse}
    match access.catalog_type:
        case "sql":
            found["uri"] = database_url(access.url or "", access.credential)
        case "hive":
            found["uri"] = metastore_url(access.url or "")
        case "rest" | "s3tablesrest":
            found |= {
                "uri": access.url,
                "credential": access.credential,
                "token": access.token,
                "scope": access.scope,
            }
    if aws is not None:
        found |= {
            "s3.region": aws.region,
            "s3.endpoint": aws.endpoint,
            "s3.access-key-id": aws.access_key_id,
            "s3.secret-access-key": aws.secret_access_key,
            "s3.session-token": aws.session_token,
        }
    return {name: value for name, value in found.items() if value is not None}


def database_url(url: str, password: str | None) -> str:
    """The URL of SQLAlchemy's with the password, and with the driver that is an extra of ours.

    Raises SLACKWATER_CONNECTOR_MISSING.
    """
    made = sqlalchemy.engine.make_url(url)
    if made.drivername == "postgresql":
        libraries.psycopg()
        made = made.set(drivername="postgresql+psycopg")
    if password is not None:
        made = made.set(password=password)
    return made.render_as_string(hide_password=False)


def metastore_url(url: str) -> str:
    """The URL of a metastore of Hive with its port."""
    host = url.removeprefix("thrift://").rstrip("/")
    has_port = ":" in host.rpartition("]")[2]
    return f"thrift://{host}" if has_port else f"thrift://{host}:{METASTORE_PORT}"


def glue_client(access: AwsAccess, endpoint: str | None) -> Any:
    """A client of Glue, at its own address unless it has an endpoint.

    Raises SLACKWATER_CONNECTOR_MISSING.
    """
    boto3, botocore = libraries.boto()
    # What was asked twice may have happened twice: a commit is not asked again.
    config = botocore.config.Config(
        connect_timeout=CONNECT_S, read_timeout=ANSWER_S, retries={"total_max_attempts": 1}
    )
    return service_client(boto3, "glue", access, endpoint, config)


def failures(library: Any) -> tuple[type[Exception], ...]:
    """The errors of a catalog, its database and its files that do not do what they are asked."""
    known = library.exceptions
    return (
        OSError,
        pa.ArrowException,
        sqlalchemy.exc.SQLAlchemyError,
        known.RESTError,
        known.CommitFailedException,
        known.CommitStateUnknownException,
        known.NoSuchTableError,
        known.NoSuchNamespaceError,
        known.NamespaceAlreadyExistsError,
        known.TableAlreadyExistsError,
        known.NoSuchPropertyException,
        *_failures_of_clients(),
    )


def _failures_of_clients() -> list[type[Exception]]:
    """The errors of clients that were imported: the others cannot have raised one."""
    found: list[type[Exception]] = []
    if (thrift := sys.modules.get("thrift.Thrift")) is not None:
        found.append(thrift.TException)
    if (botocore := sys.modules.get("botocore.exceptions")) is not None:
        found += [botocore.ClientError, botocore.BotoCoreError]
    return found


def _signed(access: AwsAccess) -> dict[str, str]:
    """The settings of pyiceberg by which requests to S3 Tables are signed."""
    found = {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "s3tables",
        "rest.signing-region": access.region or REGION,
        # A request is not made again, as of other servers: it may have happened.
        "rest.sigv4.max-retries": "0",
        "client.access-key-id": access.access_key_id,
        "client.secret-access-key": access.secret_access_key,
        "client.session-token": access.session_token,
    }
    return {name: value for name, value in found.items() if value is not None}


def _hive_catalog(name: str, properties: dict[str, str]) -> Any:
    hive: Any = libraries.pyiceberg_hive()

    class Limited(hive._HiveClient):  # type: ignore[misc]
        """A client that waits for no answer for ever."""

        def _init_thrift_transport(self) -> Any:
            address = urlsplit(self._uri)
            socket = hive.TSocket.TSocket(address.hostname, address.port)
            socket.setTimeout(ANSWER_S * 1000)
            return hive.TTransport.TBufferedTransport(socket)

    class LimitedCatalog(hive.HiveCatalog):  # type: ignore[misc]
        @staticmethod
        def _create_hive_client(properties: dict[str, str]) -> Any:
            return Limited(properties["uri"])

    return LimitedCatalog(name, **properties)


def _glue_catalog(
    name: str, properties: dict[str, str], access: AwsAccess, endpoint: str | None
) -> Any:
    client = glue_client(access, endpoint)
    return libraries.pyiceberg_glue().GlueCatalog(name, client=client, **properties)
