"""Messages of Protobuf for tests, whose schemas are texts."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from slackwater.adapter.external.protobuf_files import compiled


@cache
def descriptors(text: str) -> bytes:
    """The descriptor set of a text, with what it imports of Google's."""
    return compiled({"test.proto": text}, "test.proto")


@cache
def classes(text: str) -> dict[str, type]:
    """The classes of the messages of a text, by their full names."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors(text)).file
    for file in files:
        pool.Add(file)
    left = list(pool.FindFileByName(files[-1].name).message_types_by_name.values())
    found = {}
    while left:
        each = left.pop()
        found[each.full_name] = message_factory.GetMessageClass(each)
        left.extend(each.nested_types)
    return found


def written(text: str, name: str, /, **values: Any) -> bytes:
    """A message with these values."""
    return classes(text)[name](**values).SerializeToString()


def framed(schema: int, message: bytes, indexes: bytes = b"\0") -> bytes:
    """A message as Confluent's serializer writes it: `indexes` say which of its schema it is."""
    return b"\0" + schema.to_bytes(4, "big") + indexes + message
