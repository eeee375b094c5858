"""Messages that tests send to topics."""

from __future__ import annotations


def send(kafka, topic, *messages):
    """Sends (key, value), or (key, value, partition), and returns when all are acknowledged."""
    producer = kafka.producer()
    for key, value, *partition in messages:
        where = {"partition": partition[0]} if partition else {}
        producer.produce(topic, key=key, value=value, **where)
    assert producer.flush(60) == 0
