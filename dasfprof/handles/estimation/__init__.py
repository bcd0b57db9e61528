"""What a graph will take, before anything is computed."""
