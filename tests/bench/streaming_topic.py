"""Spark Structured Streaming beside Slackwater: for each line "in out" it aggregates one topic
into another. Arguments: the broker, a folder for checkpoints, jars of Spark's Kafka connector.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

COLUMNS = "id BIGINT, customer STRING, amount DECIMAL(12, 2)"


def main():
    broker, folder, jars = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    running = None
    for line in sys.stdin:
        if running is not None:
            running.stop()
        topic, out = line.split()
        messages = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr(f"from_json(CAST(value AS STRING), '{COLUMNS}') AS m")
            .selectExpr("m.*")
        )
        totals = messages.groupBy("customer").agg({"id": "count", "amount": "sum"})
        running = (
            totals.selectExpr(
                "customer AS key",
                "to_json(struct(customer, `count(id)` AS n, `sum(amount)` AS amount)) AS value",
            )
            .writeStream.format("kafka")
            .outputMode("update")
            .option("kafka.bootstrap.servers", broker)
            .option("topic", out)
            .option("checkpointLocation", str(Path(folder) / out))
            .start()
        )
        print("started", flush=True)


if __name__ == "__main__":
    main()
