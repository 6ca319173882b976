"""What a step of a model reads: its shape, from its own config, and its bytes, as stored."""
