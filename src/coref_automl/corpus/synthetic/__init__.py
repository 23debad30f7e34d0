"""Synthetic Korean text with known answers: documents with entity chains and relations, and relation-extraction rows."""
