"""Who signed, and whether the numbers follow from the evidence."""
