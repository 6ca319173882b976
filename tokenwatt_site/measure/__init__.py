"""Loading an engine and recording what it does."""
