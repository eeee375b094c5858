"""Kafka: what is decided about topics, without the library that reads and writes them."""
