"""Data: sources of classes and functions, and the episodes drawn from them."""
