"""Modules that determine facts about each task run."""
