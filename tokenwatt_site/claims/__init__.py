"""Every published number: `derive` makes them, each part from evidence of its own. Pure."""
