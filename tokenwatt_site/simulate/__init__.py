"""An engine that knows the truth: to test us, never to publish."""
