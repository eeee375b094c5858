"""Sources and sinks, and the replica that runs them."""
