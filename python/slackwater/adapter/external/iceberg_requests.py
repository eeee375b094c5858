"""REST catalogs of pyiceberg whose requests end: the library itself waits for an answer for ever.

Each session of a catalog gets an adapter with time limits, as the manual of requests has it
("Transport Adapters"). A session asks for tokens before its catalog has it, so it gets them where
pyiceberg sets its headers.
"""

from __future__ import annotations

from typing import Any

CONNECT_S = 10.0
ANSWER_S = 60.0
"""The longest that a catalog may say nothing. What was asked may have happened then."""


def rest_catalog(library: Any, name: str, properties: dict[str, str]) -> Any:
    """The catalog. Raises what asking it raises, after these times too."""
    from requests.adapters import HTTPAdapter

    class Limited(HTTPAdapter):
        def send(self, request: Any, *given: Any, **more: Any) -> Any:
            return super().send(request, *given, **{**more, "timeout": (CONNECT_S, ANSWER_S)})

    class LimitedCatalog(library.catalog.rest.RestCatalog):  # type: ignore[misc]
        def _config_headers(self, session: Any) -> None:
            super()._config_headers(session)
            for scheme in ("http://", "https://"):
                session.mount(scheme, Limited())

        def _init_sigv4(self, session: Any) -> None:
            super()._init_sigv4(session)
            signing = session.get_adapter(self.uri)
            send = signing.send

            def limited(request: Any, *given: Any, **more: Any) -> Any:
                return send(request, *given, **{**more, "timeout": (CONNECT_S, ANSWER_S)})

            signing.send = limited

    return LimitedCatalog(name, **properties)
