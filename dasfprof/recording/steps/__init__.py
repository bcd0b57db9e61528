"""Steps of the user's pipeline, and the layers and graphs that belong to them."""
