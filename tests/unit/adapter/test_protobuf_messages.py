"""Messages of Protobuf as they come from topics, and their schemas as registries give them."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2
from tests.support.kafka.protobuf import classes, descriptors, framed, written

from slackwater.adapter.external import libraries, protobuf_files
from slackwater.adapter.external.protobuf import ProtobufMessages, described
from slackwater.adapter.external.protobuf_files import compiled, files_by_id, latest_files
from slackwater.adapter.external.registry import SchemaRegistry
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import RegistryAccess

ORDER = """
syntax = "proto3";
package shop;
message Order {
  string customer = 1;
  int64 amount = 2;
  message Line { int32 n = 1; message Part { int32 p = 1; } }
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  repeated int32 numbers = 5;
  Line main = 6;
}
message Other { string customer = 1; }
"""


def reader(text, message=None, **more):
    return ProtobufMessages(described(descriptors(text), message, "values"), **more)


def problem(messages, message):
    with pytest.raises(ValueError, match=r"\w") as caught:
        messages.value(message)
    return str(caught.value)


def test_a_message_says_which_of_its_schema_it_is():
    known = {7: descriptors(ORDER)}
    orders = reader(ORDER, "shop.Order", writer=known.get)
    order = written(ORDER, "shop.Order", customer="ann")
    for indexes in (b"\0", b"\x02\0"):
        assert orders.value(framed(7, order, indexes)).customer == "ann"
    assert reader(ORDER, "shop.Other", writer=known.get).value(framed(7, b"", b"\x02\x02"))
    part = reader(ORDER, "shop.Order.Line.Part", writer=known.get)
    assert part.value(framed(7, b"\x08\x05", b"\x06\0\0\0")).p == 5
    for indexes, reason in (
        (b"\x02\x02", "it is a message shop.Other, and not shop.Order"),
        (b"\x04\0\0", "it is a message shop.Order.Line, and not shop.Order"),
        (b"\x02\x04", "its schema has no message at [2]"),
        (b"\x02\x01", "its schema has no message at [-1]"),
    ):
        assert problem(orders, framed(7, order, indexes)).endswith(reason)
    unclear = "it does not say which message of its schema it is"
    for indexes in (b"", b"\x02", b"\x01", b"\x80", b"\xff" * 11, b"\xca\x01" + b"\0" * 200):
        assert problem(orders, framed(7, b"", indexes)) == unclear
    for bare in (b"", b"\0\0\0\0", b"\1" + framed(7, order)[1:]):
        assert problem(orders, bare).startswith("it does not begin with a zero byte")
    assert reader(ORDER, "shop.Order", has_header=False).value(order).customer == "ann"
    # Without a registry the id and the place mean nothing.
    assert reader(ORDER, "shop.Order").value(framed(9, order, b"\x02\x04")).customer == "ann"


def test_writers_change_their_schema():
    more = ORDER.replace("int64 amount = 2;", "int64 amount = 2; bool more = 9;")
    fewer = ORDER.replace("int64 amount = 2;", "")
    narrow = ORDER.replace("int64 amount", "int32 sum")
    other = ORDER.replace("int64 amount", "string amount")
    asked = []
    schemas = {n: descriptors(each) for n, each in enumerate((more, fewer, narrow, other))}

    def writer(schema):
        asked.append(schema)
        return schemas.get(schema, b"" if schema == 9 else None)

    orders = reader(ORDER, "shop.Order", writer=writer)
    assert orders.value(framed(0, written(more, "shop.Order", amount=1, more=True))).amount == 1
    assert orders.value(framed(1, written(fewer, "shop.Order"))).amount == 0
    assert orders.value(framed(2, written(narrow, "shop.Order", sum=-1))).amount == -1
    for _ in range(2):
        found = problem(orders, framed(3, written(other, "shop.Order", amount="x")))
        assert found == "its schema is none of the source's: amount is string, and not int64"
        assert problem(orders, framed(8, b"")) == "the registry has no schema 8"
        assert problem(orders, framed(9, b"")).startswith("the schema 9 cannot be used: it is an")
    assert asked == [0, 1, 2, 3, 8, 9]


def test_fields_in_another_form_are_no_missing_ones():
    """Where no registry says what a writer meant, the bytes do as far as they can."""
    orders = reader(ORDER, "shop.Order", has_header=False)
    order = classes(ORDER)["shop.Order"]
    whole = order(numbers=[1, 2], lines=[{"n": 1}], by_name={"k": {"n": 2}}, main={"n": 3})
    given = whole.SerializeToString()
    assert orders.value(given).SerializeToString() == given
    # Numbers that are not packed, and a field that nobody knows.
    assert orders.value(b"\x28\x01\x28\x02\x98\x06\x01").numbers == [1, 2]
    line = b"\x0a\x01x"  # text in place of the number n
    for message, place in (
        (b"\x10\x01\x08\x01", "the field 1 of shop.Order"),
        (b"\x1a\x03" + line, "the field 1 of shop.Order.Line"),
        (b"\x32\x03" + line, "the field 1 of shop.Order.Line"),
        (b"\x22\x08\x0a\x01k\x12\x03" + line, "the field 1 of shop.Order.Line"),
        (b"\x22\x08\x0a\x01k\x15\0\0\0\0", "the field 4 of shop.Order"),
        (b"\x2d\0\0\0\0", "the field 5 of shop.Order"),
    ):
        assert problem(orders, message) == f"{place} is written as another type"
    assert problem(orders, b"\x0a\xff").startswith("it is no message shop.Order: ")


def test_descriptor_sets():
    files = descriptors(ORDER)
    found = described(files, ".shop.Order", "values")
    assert (found.files, found.message) == (files, "shop.Order")
    alone = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M {{ {} t = 1; }}'
    alone = alone.format("google.protobuf.Timestamp")
    assert described(descriptors(alone), None, "values").message == "M"
    found = descriptor_pb2.FileDescriptorSet.FromString(descriptors(alone))
    # Files of Google's may be left out; others may stand in any order.
    last = descriptor_pb2.FileDescriptorSet(file=[found.file[-1]]).SerializeToString()
    assert described(last, None, "values").types == described(descriptors(alone), "M", "v").types
    importing = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    circle = [importing, descriptor_pb2.FileDescriptorProto(name="b.proto", dependency=["a.proto"])]
    unknown = descriptor_pb2.FileDescriptorProto(name="a", dependency=["google/type/x.proto"])
    broken = descriptor_pb2.FileDescriptorProto(name="a.proto")
    broken.message_type.add(name="M").field.add(name="f", number=1, type_name="None", label=1)
    for given, message, reason in (
        (b"\xff", "M", "it is no descriptor set"),
        (b"", "M", "it is an empty descriptor set"),
        (files, "Order", "it has no message Order; it has shop.Order, shop.Other"),
        (files, None, "which message is meant; there is shop.Order, shop.Other"),
        (of_files(importing), "M", "it imports b.proto, which it does not have"),
        (of_files(unknown), "M", "it imports google/type/x.proto, which it does not have"),
        (of_files(*circle), "M", "the file a.proto imports itself"),
        (of_files(broken), "M", "Couldn't build proto file"),
    ):
        with pytest.raises(SlackwaterError, match="SLACKWATER_PROTOBUF_SCHEMA") as caught:
            described(given, message, "values")
        assert reason in str(caught.value), caught.value


def of_files(*files):
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def client(registry):
    return SchemaRegistry("r", lambda: RegistryAccess(registry.address, None))


USES = """
syntax = "proto3";
import "common.proto";
import "google/protobuf/timestamp.proto";
message Used { Money price = 1; google.protobuf.Timestamp at = 2; }
"""
COMMON = 'syntax = "proto3"; import "units.proto"; message Money { int64 n = 1; Unit u = 2; }'
UNITS = 'syntax = "proto3"; message Unit { string name = 1; }'


@pytest.mark.parametrize("serializes", [True, False])
def test_a_registry_has_descriptors_or_texts(registry, serializes):
    registry.serializes = serializes
    registry.register_protobuf("units", UNITS)
    registry.register_protobuf("common", COMMON, units="units")
    number = registry.register_protobuf("t-value", USES, common="common")
    found = files_by_id(client(registry), number)
    used = described(found, None, "values")
    assert used.types == described(registry.descriptors(USES), "Used", "values").types
    assert set(used.types.types) == {"Used", "Money", "Unit", "google.protobuf.Timestamp"}
    assert latest_files(client(registry), "t-value") == found
    assert files_by_id(client(registry), 99) is latest_files(client(registry), "none") is None
    message = framed(number, written(USES_ALONE, "Used", price={"n": 3, "u": {"name": "EUR"}}))
    messages = ProtobufMessages(used, writer=lambda each: files_by_id(client(registry), each))
    assert messages.value(message).price.u.name == "EUR"


USES_ALONE = f"""{UNITS} message Money {{ int64 n = 1; Unit u = 2; }}
message Used {{ Money price = 1; }}"""


def test_schemas_that_cannot_be_used(registry):
    asked = client(registry)
    text = 'syntax = "proto3"; message M { Gone g = 1; }'
    for answer, reason in (
        ({"schema": '"long"'}, "of the kind AVRO, which is not PROTOBUF"),
        ({"schema": "no proto", "schemaType": "PROTOBUF"}, "its text cannot be compiled: "),
        ({"schema": text, "schemaType": "PROTOBUF"}, '"Gone" is not defined'),
        (
            {
                "schema": text,
                "schemaType": "PROTOBUF",
                "references": [{"name": "g.proto", "subject": "gone", "version": 2}],
            },
            "refers to version 2 of gone, which the registry does not have",
        ),
    ):
        for path in ("/schemas/ids/1", "/schemas/ids/1?format=serialized"):
            registry.answers[path] = 200, answer
        with pytest.raises(ValueError, match=reason):
            files_by_id(asked, 1)
    for name in ("../x.proto", "/x.proto", ""):
        with pytest.raises(ValueError, match="refers to a file of the name"):
            compiled({"main.proto": UNITS, name: UNITS}, "main.proto")
    for names in (("a", "a/b"), ("n" * 300,)):
        with pytest.raises(ValueError, match="refers to files that cannot be written"):
            compiled({"main.proto": UNITS, **dict.fromkeys(names, UNITS)}, "main.proto")


def test_files_of_a_registry_are_not_run():
    """A name may be that of a module; nothing looks for modules where the files are."""
    texts = {"main.proto": UNITS, "grpc_tools/protoc.py": "raise SystemExit(7)"}
    texts |= {"grpc_tools/__init__.py": "", "sitecustomize.py": "raise SystemExit(7)"}
    assert described(compiled(texts, "main.proto"), None, "values").message == "Unit"


def test_schemas_that_refer_to_too_many_others(registry, monkeypatch):
    monkeypatch.setattr(protobuf_files, "_MOST_FILES", 3)
    endless = [{"name": f"{n}.proto", "subject": "s", "version": 1} for n in range(4)]
    answer = {"schema": UNITS, "schemaType": "PROTOBUF"}
    registry.answers["/schemas/ids/1?format=serialized"] = 200, answer
    registry.answers["/schemas/ids/1"] = 200, {**answer, "references": endless}
    registry.answers["/subjects/s/versions/1"] = 200, answer
    with pytest.raises(ValueError, match="too many others"):
        files_by_id(client(registry), 1)


def test_a_compiler_that_is_missing(registry, monkeypatch):
    number = registry.register_protobuf("t-value", UNITS)
    file = descriptor_pb2.FileDescriptorSet.FromString(descriptors(UNITS)).file[-1]
    monkeypatch.setattr(libraries, "find_spec", lambda _: None)
    with pytest.raises(SlackwaterError, match="SLACKWATER_CONNECTOR_MISSING") as caught:
        compiled({"main.proto": UNITS}, "main.proto")
    assert "pip install 'slackwater[protobuf]'" in str(caught.value)
    # A registry that gives descriptors needs none.
    text = base64.b64encode(file.SerializeToString()).decode()
    answer = {"schema": text, "schemaType": "PROTOBUF"}
    registry.answers[f"/schemas/ids/{number}?format=serialized"] = 200, answer
    assert described(files_by_id(client(registry), number), None, "values").message == "Unit"
