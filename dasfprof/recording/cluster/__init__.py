"""Calls from the client to the processes of a cluster."""
