"""Publish: a checkpoint on the hub."""
