"""The bridge to Spark: gateway, jar, session builder. The only place that names py4j."""
