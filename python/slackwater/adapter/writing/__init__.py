"""The path of rows into one durable commit of the environment's tables."""
