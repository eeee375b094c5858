"""Sessions: their blocks, what they have buffered, their cursors and their answers."""
