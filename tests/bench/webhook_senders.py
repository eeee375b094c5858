"""Senders of webhook requests, in a process of their own: port, source, how many, for how long.

Each has one connection, and sends the next request when the one before was answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import time


async def send(port, name, sender, until, took):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        number += 1
        body = b'{"sender": %d, "number": %d}' % (sender, number)
        signature = hmac.new(b"key", body, hashlib.sha256).hexdigest()
        head = (
            f"POST /api/webhook/slackwater/default/{name} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nSig: {signature}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        took.append((time.perf_counter() - began) * 1000)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(answer.decode())
    writer.close()


async def main(port, name, senders, seconds):
    took = []
    began = time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(send(port, name, each, until, took) for each in range(senders)))
    print(json.dumps({"took_ms": took, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    port, name, senders, seconds = sys.argv[1:]
    asyncio.run(main(int(port), name, int(senders), float(seconds)))
