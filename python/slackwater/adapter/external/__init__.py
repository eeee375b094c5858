"""The ways to systems outside, by client libraries that no other room imports."""
