"""Connections with the values of their secrets, as they are now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from slackwater.adapter.catalog.details import ConnectionDetails, ConnectionSetting
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.external.aws import RENEWED_MS
from slackwater.adapter.external.trials.steps import Target
from slackwater.adapter.external.trials.validation import Access
from slackwater.adapter.external.tunnels import SshTunnel, Tunnels
from slackwater.adapter.sources.secrets import Secrets, version_of
from slackwater.adapter.sources.tunnel_keys import TunnelKeys
from slackwater.planner.parser.connection_options import security_protocol, ssl_mode
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.repr.errors import FatalError, user_error
from slackwater.repr.ids import GlobalId
from slackwater.storage.access import (
    AwsAccess,
    IcebergAccess,
    PostgresAccess,
    RegistryAccess,
    SshAccess,
    Tls,
)
from slackwater.storage.kafka.access import KafkaAccess

POSTGRES_PORT = "5432"
SSH_PORT = "22"
_KAFKA: Mapping[str, str] = {
    "SASL MECHANISMS": "sasl.mechanisms",
    "SASL USERNAME": "sasl.username",
    "SASL PASSWORD": "sasl.password",
    "SSL CERTIFICATE AUTHORITY": "ssl.ca.pem",
    "SSL CERTIFICATE": "ssl.certificate.pem",
    "SSL KEY": "ssl.key.pem",
}
"""The names of librdkafka for options whose values it takes as they are."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """The options of a connection with the values of its secrets."""

    values: Mapping[str, str]
    secrets: tuple[str, ...]
    version: str

    def tls(self, *, is_verified: bool = True, names_host: bool = True) -> Tls:
        authority, certificate, key = (
            self.values.get(option)
            for option in ("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY")
        )
        return Tls(authority, certificate, key, is_verified, names_host)


class Connections:
    """The connections of the environment. Thread-safe.

    Each method raises SLACKWATER_DEPENDENCY_DROPPED when the connection or one of its secrets is
    gone, SLACKWATER_SECRET_NOT_TEXT, and SLACKWATER_METASTORE_UNAVAILABLE.
    """

    def __init__(
        self,
        state: Callable[[], CatalogState],
        secrets: Secrets,
        keys: TunnelKeys,
        tunnels: Tunnels,
        clock_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._secrets = secrets
        self._keys = keys
        self._tunnels = tunnels
        self._clock_ms = clock_ms

    def kafka(self, connection: GlobalId) -> KafkaAccess:
        """The way into the Kafka cluster of that connection."""
        return self._kafka(self._details(connection, "KAFKA"))

    def registry(self, connection: GlobalId) -> RegistryAccess:
        """The way into the schema registry of that connection."""
        return self._registry(self._details(connection, "CONFLUENT SCHEMA REGISTRY"))

    def postgres(self, connection: GlobalId) -> PostgresAccess:
        """The way into the database of that connection."""
        return self._postgres(self._details(connection, "POSTGRES"))

    def postgres_of(self, details: ConnectionDetails) -> PostgresAccess:
        """The way that a connection with these details gives, which may have been dropped."""
        return self._postgres(details)

    def aws(self, connection: GlobalId) -> AwsAccess:
        """The way into AWS of that connection."""
        return self._aws(self._details(connection, "AWS"))

    def iceberg(self, connection: GlobalId) -> IcebergAccess:
        """The way into the catalog of that connection."""
        return self._iceberg(self._details(connection, "ICEBERG CATALOG"))

    def version(self, connection: GlobalId) -> str:
        """The version that the access has now, without asking for a secret's value."""
        return self._version(self._state(), self._item(connection).of(ConnectionDetails))

    def ssh(self, connection: GlobalId) -> SshAccess:
        """The way to the server of that tunnel."""
        details = self._details(connection, "SSH TUNNEL")
        return self._ssh(self._item(connection), details)

    def new_tunnel(self, item: CatalogItem, keys: tuple[str, ...]) -> SshAccess:
        """The way to the server of a tunnel with these private keys, which is not in the catalog
        yet."""
        return self._ssh_with(item, item.of(ConnectionDetails), keys)

    def access(self, item: CatalogItem) -> Access:
        """The way that a connection gives, whose details may not be in the catalog yet."""
        details = item.of(ConnectionDetails)
        match details.kind:
            case "KAFKA":
                return self._kafka(details)
            case "CONFLUENT SCHEMA REGISTRY":
                return self._registry(details)
            case "POSTGRES":
                return self._postgres(details)
            case "AWS":
                return self._aws(details)
            case "ICEBERG CATALOG":
                return self._iceberg(details)
            case "SSH TUNNEL":
                return self._ssh(item, details)

    def _item(self, connection: GlobalId) -> CatalogItem:
        return self._state().item(connection)

    def _details(self, connection: GlobalId, kind: ConnectionKind) -> ConnectionDetails:
        item = self._item(connection)
        details = item.of(ConnectionDetails)
        if details.kind != kind:
            raise FatalError(f"{item.full_name} ({item.id}) is no connection to {kind}")
        return details

    def _kafka(self, details: ConnectionDetails) -> KafkaAccess:
        opened = self._open(details)
        protocol = security_protocol({each.name: each.texts or None for each in details.settings})
        settings = [
            ("bootstrap.servers", ",".join(details.texts("BROKERS"))),
            ("security.protocol", protocol),
            *(
                (name, opened.values[option])
                for option, name in _KAFKA.items()
                if option in opened.values
            ),
        ]
        return KafkaAccess(tuple(settings), opened.secrets, opened.version)

    def _registry(self, details: ConnectionDetails) -> RegistryAccess:
        opened = self._open(details)
        url = opened.values["URL"]
        return RegistryAccess(
            url,
            opened.tls() if url.lower().startswith("https:") else None,
            opened.values.get("USERNAME"),
            opened.values.get("PASSWORD"),
            opened.secrets,
            opened.version,
            self._tunnel(details),
        )

    def _postgres(self, details: ConnectionDetails) -> PostgresAccess:
        opened = self._open(details)
        values = opened.values
        mode = ssl_mode({each.name: each.texts or None for each in details.settings})
        # As libpq: an authority that is named is asked, also where `require` would do without.
        verified = mode.startswith("verify") or "SSL CERTIFICATE AUTHORITY" in values
        full = mode == "verify_full"
        return PostgresAccess(
            host=values["HOST"],
            port=int(values.get("PORT", POSTGRES_PORT)),
            database=values["DATABASE"],
            user=values["USER"],
            ssl_mode=mode,
            tls=None if mode == "disable" else opened.tls(is_verified=verified, names_host=full),
            password=values.get("PASSWORD"),
            secrets=opened.secrets,
            version=opened.version,
            tunnel=self._tunnel(details),
        )

    def _tunnel(self, details: ConnectionDetails) -> SshTunnel | None:
        used = details.through
        return None if used is None else self._tunnels.through(self.ssh(used))

    def _ssh(self, item: CatalogItem, details: ConnectionDetails) -> SshAccess:
        return self._ssh_with(item, details, self._keys.private(item.id, item.full_name))

    def _ssh_with(
        self, item: CatalogItem, details: ConnectionDetails, keys: tuple[str, ...]
    ) -> SshAccess:
        opened = self._open(details)
        values = opened.values
        target = Target(values["HOST"], int(values.get("PORT", SSH_PORT)))
        pinned = values.get("HOST KEY")
        return SshAccess(
            connection=item.id,
            name=item.full_name,
            host=target.host,
            port=target.port,
            user=values["USER"],
            host_key=pinned or self._keys.seen(item.id, target.address),
            is_pinned=pinned is not None,
            keys=keys,
            keep=partial(self._keys.keep, item.id, target.address),
            secrets=(*opened.secrets, *keys),
            version=opened.version,
        )

    def _aws(self, details: ConnectionDetails) -> AwsAccess:
        opened = self._open(details)
        get = opened.values.get
        return AwsAccess(
            get("REGION"),
            get("ENDPOINT"),
            get("ACCESS KEY ID"),
            get("SECRET ACCESS KEY"),
            get("SESSION TOKEN"),
            get("ASSUME ROLE ARN"),
            get("ASSUME ROLE SESSION NAME"),
            opened.secrets,
            opened.version,
        )

    def _iceberg(self, details: ConnectionDetails) -> IcebergAccess:
        opened = self._open(details)
        get = opened.values.get
        aws = None if details.through is None else self.aws(details.through)
        return IcebergAccess(
            opened.values["CATALOG TYPE"],
            get("URL"),
            get("WAREHOUSE"),
            get("CATALOG NAME"),
            get("CREDENTIAL"),
            get("TOKEN"),
            get("SCOPE"),
            aws,
            opened.secrets if aws is None else (*opened.secrets, *aws.secrets),
            opened.version,
        )

    def _open(self, details: ConnectionDetails) -> _Opened:
        # The version comes first: values that are newer are asked for once more, never missed.
        state = self._state()
        version = self._version(state, details)
        values = {
            each.name: self._value(state, each)
            for each in details.settings
            if each.connection is None
        }
        hidden = [values[each.name] for each in details.settings if each.secret is not None]
        return _Opened(values, tuple(hidden), version)

    def _version(self, state: CatalogState, details: ConnectionDetails) -> str:
        used = [f"{each}@{version_of(state.item(each))}" for each in details.secrets]
        if details.through is not None:
            other = state.item(details.through).of(ConnectionDetails)
            used.append(f"{details.through}@({self._version(state, other)})")
        if details.texts("ASSUME ROLE ARN"):
            # Who notices connects anew, before the keys of the role expire.
            used.append(f"role@{self._clock_ms() // RENEWED_MS}")
        return " ".join((str(details.version), *used))

    def _value(self, state: CatalogState, setting: ConnectionSetting) -> str:
        if setting.secret is None:
            return ",".join(setting.texts)
        item = state.item(setting.secret)
        try:
            return self._secrets.value(item).decode("utf-8")
        except UnicodeDecodeError:
            raise user_error("SLACKWATER_SECRET_NOT_TEXT", objectName=item.full_name) from None
