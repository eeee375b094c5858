"""From rows to one durable commit of the environment's tables."""
