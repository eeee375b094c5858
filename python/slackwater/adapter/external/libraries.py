"""Client libraries, which are imported when they are first needed, and may be missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from slackwater.repr.errors import SlackwaterError, user_error


def confluent_kafka() -> Any:
    """The module, with `admin` in it. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise _missing("Kafka", "kafka") from None
    return confluent_kafka


def fastavro() -> Any:
    """The module, with its schemas and readers. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import fastavro
        import fastavro.read
        import fastavro.schema
    except ImportError:
        raise _missing("Avro", "kafka") from None
    return fastavro


def protobuf() -> Any:
    """The module, with descriptors, pools and messages. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import google.protobuf
        import google.protobuf.descriptor_pb2
        import google.protobuf.descriptor_pool
        import google.protobuf.message
        import google.protobuf.message_factory
        import google.protobuf.unknown_fields
    except ImportError:
        raise _missing("Protobuf", "kafka") from None
    return google.protobuf


def compiler_of_protobuf() -> Sequence[str]:
    """The command that compiles texts of Protobuf. Raises SLACKWATER_CONNECTOR_MISSING."""
    if find_spec("grpc_tools") is None:
        raise _missing("texts of Protobuf, as this schema registry gives them,", "protobuf")
    return (sys.executable, "-m", "grpc_tools.protoc")


def deltalake() -> Any:
    """The module, with its exceptions. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise _missing("Delta", "delta") from None
    return deltalake


def psycopg() -> Any:
    """The module. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import psycopg
    except ImportError:
        raise _missing("PostgreSQL", "postgres") from None
    return psycopg


def asyncssh() -> Any:
    """The module. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import asyncssh
    except ImportError:
        raise _missing("SSH", "ssh") from None
    return asyncssh


def boto() -> tuple[Any, Any]:
    """The modules boto3 and botocore. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import boto3
        import botocore.config
        import botocore.exceptions
    except ImportError:
        raise _missing("AWS", "aws") from None
    return boto3, botocore


def pyiceberg() -> Any:
    """The module, with the parts of it that sinks use. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import pyiceberg
        import pyiceberg.catalog
        import pyiceberg.catalog.rest
        import pyiceberg.exceptions
        import pyiceberg.io.pyarrow
        import pyiceberg.manifest
        import pyiceberg.partitioning
        import pyiceberg.schema
        import pyiceberg.table
        import pyiceberg.table.refs
        import pyiceberg.table.snapshots
        import pyiceberg.table.update
        import pyiceberg.typedef
        import pyiceberg.types
    except ImportError:
        raise _missing("Iceberg", "iceberg") from None
    return pyiceberg


def pyiceberg_hive() -> Any:
    """The module with catalogs of metastores of Hive. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import pyiceberg.catalog.hive
    except ImportError:
        raise _missing("a metastore of Hive", "hive") from None
    return pyiceberg.catalog.hive


def pyiceberg_glue() -> Any:
    """The module with catalogs of Glue. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import pyiceberg.catalog.glue
    except ImportError:
        raise _missing("AWS", "aws") from None
    return pyiceberg.catalog.glue


def openlineage() -> Any:
    """The module, with its client and facets. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import openlineage.client
        import openlineage.client.event_v2
        import openlineage.client.facet_v2
    except ImportError:
        raise _missing("OpenLineage", "lineage") from None
    return openlineage


def opentelemetry() -> Any:
    """The module, with its SDK and its exporter. Raises SLACKWATER_CONNECTOR_MISSING."""
    try:
        import opentelemetry.context
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.resources
        import opentelemetry.sdk.trace.export
        import opentelemetry.trace
    except ImportError:
        raise _missing("OpenTelemetry", "otel") from None
    return opentelemetry


def _missing(system: str, extra: str) -> SlackwaterError:
    return user_error("SLACKWATER_CONNECTOR_MISSING", system=system, extra=extra)
