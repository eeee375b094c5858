"""Senders of changes, in a process of their own: port, how many, rows in a batch, for how long."""

from __future__ import annotations

import asyncio
import json
import sys
import time

PATH = "/api/changefeed/slackwater/default/landing"


async def send(port, sender, batch, until, counted):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        updated = f"{time.time_ns()}.0000000000"
        keys = range(number, number + batch)
        number += batch
        payload = [
            {
                "after": {"id": key, "owner": f"the owner of {key}", "balance": key},
                "key": [key],
                "topic": "bank.public.landing_rows",
                "updated": updated,
            }
            for key in keys
        ]
        body = json.dumps({"payload": payload, "length": batch}).encode()
        head = f"POST {PATH}?feed={sender} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(answer.decode())
        counted.append(batch)
    writer.close()


async def main(port, senders, batch, seconds):
    counted = []
    began = time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(send(port, each, batch, until, counted) for each in range(senders)))
    print(json.dumps({"rows": sum(counted), "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    port, senders, batch, seconds = sys.argv[1:]
    asyncio.run(main(int(port), int(senders), int(batch), float(seconds)))
