"""The index page of a directory's runs over time."""
