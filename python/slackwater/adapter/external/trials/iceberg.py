"""Catalogs of Iceberg, tried by a question for their namespaces, or a database by one for nothing.

pyiceberg has no limits of time: what it is asked runs in a thread, which is left alone when the
deadline has come.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy
import sqlalchemy.exc
from sqlalchemy.engine import URL, make_url

from slackwater.adapter.external import libraries
from slackwater.adapter.external.iceberg_catalogs import (
    database_url,
    failures,
    glue_client,
    metastore_url,
    opened,
)
from slackwater.adapter.external.trials.reaching import SILENT, reached
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.repr.errors import first_line
from slackwater.storage.access import AwsAccess, IcebergAccess, Tls

_PORTS = {"http": 80, "https": 443}
_POSTGRES_PORT = 5432
_LOGIN_S = 5.0


def validate(access: IcebergAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING."""
    library = libraries.pyiceberg()
    if access.catalog_type == "sql":
        _validate_database(access, deadline)
        return
    url = urlsplit(_address(access))
    scheme = url.scheme.lower()
    target = Target(url.hostname or "", url.port or _PORTS[scheme])
    tls = Tls() if scheme == "https" else None
    reached(target, tls, deadline.earlier(_LOGIN_S)).close()
    _ask(target.address, deadline, lambda: _list(library, access, target.address))


def _address(access: IcebergAccess) -> str:
    match access.catalog_type:
        case "hive":
            return metastore_url(access.url or "")
        case "glue":
            client = glue_client(access.aws or AwsAccess(), access.url)
            try:
                return str(client.meta.endpoint_url)
            finally:
                client.close()
        case _:
            return access.url or ""


def _validate_database(access: IcebergAccess, deadline: Deadline) -> None:
    url = make_url(database_url(access.url or "", access.credential))
    if url.database is not None and url.get_backend_name() == "sqlite":
        address = url.database
        _check_folder(address)
        if not os.path.exists(address):
            # A question would make it.
            return
    else:
        target = Target(url.host or "", url.port or _POSTGRES_PORT)
        address = target.address
        reached(target, None, deadline.earlier(_LOGIN_S)).close()
    _ask(address, deadline, lambda: _connect(url, address))


def _list(library: Any, access: IcebergAccess, address: str) -> None:
    known = library.exceptions
    # It may not answer as a catalog does.
    kinds: tuple[type[Exception], ...] = (*failures(library), ValueError, KeyError)
    try:
        opened(library, access, None).list_namespaces()
    except known.ForbiddenError as refused:
        raise StepFailed("permission", address, first_line(str(refused))) from None
    except kinds as failed:
        raise StepFailed("login", address, first_line(str(failed))) from None


def _connect(url: URL, address: str) -> None:
    engine = sqlalchemy.create_engine(url)
    question = "PRAGMA schema_version" if url.get_backend_name() == "sqlite" else "SELECT 1"
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(question))
    except sqlalchemy.exc.SQLAlchemyError as failed:
        reason = first_line(str(getattr(failed, "orig", None) or failed))
        raise StepFailed("login", address, reason) from None
    finally:
        engine.dispose()


def _check_folder(path: str) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StepFailed("name", path, "there is no such folder")
    if not os.access(folder, os.W_OK):
        raise StepFailed("permission", path, "nothing can be written into the folder")


def _ask(address: str, deadline: Deadline, question: Callable[[], None]) -> None:
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            question()
        except Exception as error:
            answers.put(error)
        else:
            answers.put(None)

    threading.Thread(target=ask, name="catalog trial", daemon=True).start()
    try:
        failed = answers.get(timeout=deadline.left)
    except queue.Empty:
        raise StepFailed("login", address, SILENT) from None
    if failed is not None:
        raise failed
