"""Pulsar's own client, for the end-to-end tests.

client.py URL read TOPIC              prints the value of every message, in order
client.py URL write TOPIC FROM COUNT [OPTION=VALUE ...]
    writes numbers from FROM on; options: batch (messages of one), compression (LZ4, ZLib, ZSTD,
    SNAPPY), chunked=1, bytes (of padding), key=1
client.py URL subscribe TOPIC NAME    makes a subscription at the beginning

A token is taken from PULSAR_TOKEN.
"""

import os
import sys

import pulsar


def read(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    lines = []
    while reader.has_message_available():
        lines.append(reader.read_next(10_000).data().decode())
    print("\n".join(lines))


def write(client, topic, first, count, options):
    batch = int(options.get("batch", 0))
    compression = getattr(pulsar.CompressionType, options.get("compression", "NONE"))
    producer = client.create_producer(
        topic,
        batching_enabled=batch > 0,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=1_000,
        compression_type=compression,
        chunking_enabled="chunked" in options,
        block_if_queue_full=True,
    )
    padding = "x" * int(options.get("bytes", 0))
    failed = []
    for number in range(first, first + count):
        more = {"partition_key": f"k{number % 7}"} if "key" in options else {}
        producer.send_async(
            (str(number) + padding).encode(),
            lambda result, _: result == pulsar.Result.Ok or failed.append(result),
            properties={"number": str(number)},
            event_timestamp=1_700_000_000_000 + number,
            **more,
        )
    producer.flush()
    assert not failed, failed


def main():
    url, command, topic, *rest = sys.argv[1:]
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    token = os.environ.get("PULSAR_TOKEN")
    authentication = pulsar.AuthenticationToken(token) if token else None
    client = pulsar.Client(url, authentication=authentication, logger=logger)
    if command == "read":
        read(client, topic)
    elif command == "write":
        options = dict(option.split("=", 1) for option in rest[2:])
        write(client, topic, int(rest[0]), int(rest[1]), options)
    else:
        position = pulsar.InitialPosition.Earliest
        client.subscribe(topic, rest[0], initial_position=position)
    client.close()


if __name__ == "__main__":
    main()
