"""Writes records as Confluent's own serializers do, with their schemas in a registry.

    registry_clients.py SERVERS REGISTRY TOPIC FORMAT VERSION FROM TO

The records are orders FROM to TO - 1. VERSION 2 of their schema has wider amounts and a note.
"""

import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = {
    1: """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}""",
    2: """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "note", "type": ["null", "string"], "default": null},
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}""",
}

JSON = {
    1: """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
        "amount": {"type": "integer"}, "at": {"type": "integer"}}}""",
    2: """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
        "amount": {"type": "integer"}, "at": {"type": "integer"}, "note": {"type": "string"}}}""",
}


def order(number, version):
    amount = number * 10_000_000_000 if version == 2 else number
    fields = {"id": number, "name": f"order-{number}", "amount": amount, "at": 1767225600000 + number}
    if version == 2:
        fields["note"] = f"note-{number}"
    return fields


def order_class(version):
    """The message class, made of a descriptor: there is no compiler of .proto files here."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name=f"order{version}.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"])
    file.message_type.add(name="Before")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    amount = field.TYPE_INT64 if version == 2 else field.TYPE_INT32
    kinds = [("id", field.TYPE_INT64), ("name", field.TYPE_STRING), ("amount", amount),
             ("at", field.TYPE_MESSAGE)]
    if version == 2:
        kinds.append(("note", field.TYPE_STRING))
    for number, (name, kind) in enumerate(kinds, 1):
        added = message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
        if kind == field.TYPE_MESSAGE:
            added.type_name = ".google.protobuf.Timestamp"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serializer(registry, kind, version):
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroSerializer

        return AvroSerializer(registry, AVRO[version]), lambda number: order(number, version)
    if kind == "json-schema":
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        return JSONSerializer(JSON[version], registry), lambda number: order(number, version)
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    message = order_class(version)

    def value(number):
        fields = order(number, version)
        made = message(id=fields["id"], name=fields["name"], amount=fields["amount"])
        made.at.FromMilliseconds(fields["at"])
        if version == 2:
            made.note = fields["note"]
        return made

    return ProtobufSerializer(message, registry, {"use.deprecated.format": False}), value


def main():
    servers, url, topic, kind, version, first, last = sys.argv[1:]
    registry = SchemaRegistryClient({"url": url})
    serialize, value = serializer(registry, kind, int(version))
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(int(first), int(last)):
        producer.produce(topic, serialize(value(number), context), key=str(number))
    left = producer.flush(60)
    if left:
        sys.exit(f"{left} records were not delivered")


main()
