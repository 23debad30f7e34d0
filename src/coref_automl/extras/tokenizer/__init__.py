"""Tokenizer: learn one, or inspect several side by side."""
