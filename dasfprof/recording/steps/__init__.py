"""Steps of the user's pipeline, and what was built and submitted in them."""
