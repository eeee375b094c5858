"""The address at which others send what becomes rows. It is not the one that sessions call."""
