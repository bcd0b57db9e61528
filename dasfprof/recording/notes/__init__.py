"""The notes that hooks write, and their conversion into rows."""
