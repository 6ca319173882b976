"""A server that knows the truth: to test us, never to publish."""
