"""A model of a serving engine, so simple that it can be replayed anywhere to the same bits."""
