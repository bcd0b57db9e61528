"""The page's drawer of a function: what all its task runs say of it."""
