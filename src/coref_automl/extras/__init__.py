"""Extras: what one may not need; each room has its own commands, checks and pages."""
