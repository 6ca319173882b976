"""Files of evidence: one module for each format, and what they share."""
