"""One request and its answer, over ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.repr.errors import user_error

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. Whoever has made it may add headers."""

    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request, and the way to what follows."""

    path: str
    headers: Mapping[bytes, bytes]
    receive: Receive

    async def body(self, limit_bytes: int) -> bytes:
        """The request's body. Raises SLACKWATER_TOO_LARGE.

        A body that is too large is read all the same and not kept, so that the client reads the
        answer.
        """
        size = 0
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the client has gone")
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size <= limit_bytes:
                chunks.append(chunk)
            else:
                chunks.clear()
        if size > limit_bytes:
            raise user_error(
                "SLACKWATER_TOO_LARGE",
                what="The request",
                limit=str(limit_bytes),
                advice="Write fewer rows or a shorter text in one statement.",
            )
        return b"".join(chunks)

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def respond(send: Send, response: Response) -> None:
    """Sends an answer."""
    headers = [
        (b"content-type", response.media_type.encode("latin-1")),
        (b"content-length", str(len(response.body)).encode()),
        *(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.headers.items()
        ),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
