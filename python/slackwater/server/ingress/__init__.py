"""The ingress: the listener for webhooks and changefeeds, at an address of its own."""
