"""The rules by which a plan's output follows its inputs."""
