"""What the storage and the compute controller share: read holds, and words of their protocols."""
