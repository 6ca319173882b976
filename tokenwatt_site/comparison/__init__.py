"""Configurations side by side: what differs, what may be divided, and what it shows."""
