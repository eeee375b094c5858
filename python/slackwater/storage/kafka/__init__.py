"""Topics of Kafka as sources. No I/O: `topic` is the seam to a client of Kafka."""
