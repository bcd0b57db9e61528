"""Estimates of the cost of a graph, before anything is computed."""
