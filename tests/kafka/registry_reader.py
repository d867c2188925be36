"""Reads records as Confluent's own deserializers do, with their schemas from a registry.

    registry_reader.py SERVERS REGISTRY TOPIC FORMAT KEY SUBJECT

Prints each record of partition 0 that is committed as a line of JSON: its key and its value. KEY
is the format of keys, avro or raw. The subject of values is SUBJECT-value. The values are orders,
with the columns of the tests.
"""

import json
import sys
from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def order_class():
    """The message class, made of a descriptor: there is no compiler of .proto files here."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="written.proto", package="read", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto

    def add(to, number, name, kind, type_name=None):
        added = to.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL,
                             proto3_optional=True, oneof_index=len(to.oneof_decl))
        to.oneof_decl.add(name=f"_{name}")
        if type_name:
            added.type_name = type_name

    add(message, 1, "id", field.TYPE_INT64)
    add(message, 2, "name", field.TYPE_STRING)
    add(message, 3, "price", field.TYPE_DOUBLE)
    add(message, 4, "at", field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    message.field.add(name="tags", number=5, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    add(message, 6, "place", field.TYPE_MESSAGE, ".read.Order.Place")
    add(message.nested_type.add(name="Place"), 1, "x", field.TYPE_INT32)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("read.Order"))


def of_message(message):
    def get(name):
        return getattr(message, name) if message.HasField(name) else None

    return {"id": get("id"), "name": get("name"), "price": get("price"),
            "at": message.at.ToMilliseconds() if message.HasField("at") else None,
            "tags": list(message.tags), "x": message.place.x if message.HasField("place") else None}


def of_fields(fields):
    at = fields.get("at")
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    place = fields.get("place") or {}
    return {"id": fields.get("id"), "name": fields.get("name"), "price": fields.get("price"),
            "at": round(at.timestamp() * 1000) if at else None,
            "tags": fields.get("tags"), "x": place.get("x")}


def deserializer(registry, kind):
    if kind == "avro":
        return AvroDeserializer(registry), of_fields
    if kind == "json-schema":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(None, schema_registry_client=registry), of_fields
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    # The registry is a fake that has no descriptors, so the class alone says what is in a record.
    return ProtobufDeserializer(order_class(), {"use.deprecated.format": False}), of_message


def main():
    servers, url, topic, kind, key_kind, subject = sys.argv[1:]
    registry = SchemaRegistryClient({"url": url})
    deserialize, order = deserializer(registry, kind)
    key_of = AvroDeserializer(registry) if key_kind == "avro" else None
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while True:
        message = consumer.poll(30)
        if message is None:
            sys.exit("nothing came for 30 seconds")
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                break
            sys.exit(str(message.error()))
        value = deserialize(message.value(), SerializationContext(subject, MessageField.VALUE))
        key = message.key()
        if key_of:
            key = key_of(key, SerializationContext(topic, MessageField.KEY))
        elif key is not None:
            key = key.decode()
        print(json.dumps({"key": key, "value": order(value)}, sort_keys=True))
    consumer.close()


main()
