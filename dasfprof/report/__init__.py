"""How it is shown and handed on: text, CSV and further forms of the tables."""
