"""What hooks note, and how rows are made of it."""
