"""The page's tables."""
