"""Relation extraction with typed entity markers: the end of the argument."""
