"""Schemas of Protobuf in a registry as descriptor sets, with the schemas that they refer to.

A registry gives descriptors if it knows how to, else the text, which is compiled.

Source: docs/decisions 0081; Confluent's reference of the registry's API.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from slackwater.adapter.external.libraries import compiler_of_protobuf, protobuf
from slackwater.adapter.external.registry import RegisteredSchema, SchemaRegistry

_COMPILES_S = 60.0
_MAIN = "slackwater_schema.proto"
_SHOWN = 500
_MOST_FILES = 1000


def files_by_id(registry: SchemaRegistry, schema: int) -> bytes | None:
    """The descriptor set of the schema with that id; None: there is none.

    Raises ValueError for what is no schema of Protobuf, SLACKWATER_REGISTRY_UNREACHABLE, and
    SLACKWATER_CONNECTOR_MISSING where a text cannot be compiled.
    """
    return _files(registry, lambda form: registry.registered_by_id(schema, form))


def latest_files(registry: SchemaRegistry, subject: str) -> bytes | None:
    """The descriptor set of the last schema of the subject. See `files_by_id`."""
    return _files(registry, lambda form: registry.registered_last(subject, form))


SERIALIZED = "serialized"
"""The form in which registries give descriptors, by their word for it."""


def _files(
    registry: SchemaRegistry, ask: Callable[[str | None], RegisteredSchema | None]
) -> bytes | None:
    found = ask(SERIALIZED)
    if found is None:
        return None
    try:
        return _described(registry, found)
    except _NoDescriptor:
        # It has said the text, or a part of it: all of it is asked for as text.
        text = ask(None)
        return None if text is None else _compiled(registry, text)


class _NoDescriptor(Exception):
    """A registry has given something else than a descriptor."""


@dataclass(slots=True)
class _References:
    """The schemas that a schema refers to, and those that these do, by the names of their files."""

    registry: SchemaRegistry
    form: str | None
    found: dict[str, RegisteredSchema] = field(default_factory=dict)

    def collect(self, schema: RegisteredSchema) -> None:
        """Asks for all that are not there yet. Raises ValueError for one that is not there."""
        schema.refuse_other("PROTOBUF")
        for each in schema.references:
            if each.name in self.found:
                continue
            if len(self.found) >= _MOST_FILES:
                raise ValueError("its schema refers to too many others")
            known = self.registry.registered_version(each, self.form)
            if known is None:
                raise ValueError(
                    f"its schema refers to version {each.version} of {each.subject}, which the "
                    "registry does not have"
                )
            self.found[each.name] = known
            self.collect(known)


def _described(registry: SchemaRegistry, schema: RegisteredSchema) -> bytes:
    references = _References(registry, SERIALIZED)
    schema.refuse_other("PROTOBUF")
    main = _descriptor(schema, _MAIN)
    references.collect(schema)
    found = protobuf().descriptor_pb2.FileDescriptorSet()
    found.file.extend(_descriptor(each, name) for name, each in references.found.items())
    found.file.append(main)
    return bytes(found.SerializeToString(deterministic=True))


def _descriptor(schema: RegisteredSchema, name: str) -> Any:
    library = protobuf()
    try:
        made = base64.b64decode(schema.text, validate=True)
        found = library.descriptor_pb2.FileDescriptorProto.FromString(made)
    except (binascii.Error, ValueError, library.message.DecodeError):
        raise _NoDescriptor from None
    found.name = name
    return found


def _compiled(registry: SchemaRegistry, schema: RegisteredSchema) -> bytes:
    references = _References(registry, None)
    references.collect(schema)
    texts = {name: each.text for name, each in references.found.items()}
    return compiled({**texts, _MAIN: schema.text}, _MAIN)


def compiled(texts: Mapping[str, str], main: str) -> bytes:
    """The descriptor set of the file `main`, which may import others of the files.

    Raises ValueError for what is no text of Protobuf, and SLACKWATER_CONNECTOR_MISSING.
    """
    command = compiler_of_protobuf()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "files"
        _write(root, texts)
        made = Path(folder) / "made"
        try:
            run = subprocess.run(
                [
                    *command,
                    f"-I{root}",
                    "--include_imports",
                    f"--descriptor_set_out={made}",
                    root / main,
                ],
                capture_output=True,
                text=True,
                timeout=_COMPILES_S,
                check=False,
                # Python looks for modules where it is started: not among files of a registry.
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise ValueError("its text was not compiled in time") from None
        if run.returncode != 0:
            reason = " ".join(run.stderr.replace(f"{root}/", "").split())
            raise ValueError(f"its text cannot be compiled: {reason[:_SHOWN]}")
        return made.read_bytes()


def _write(root: Path, texts: Mapping[str, str]) -> None:
    """Writes the files below `root`. Raises ValueError for names that no file there can have."""
    for name, text in texts.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"its schema refers to a file of the name {name!r}")
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        except OSError as error:
            reason = f"its schema refers to files that cannot be written: {error.strerror}"
            raise ValueError(reason) from None
