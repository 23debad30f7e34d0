"""Models: load them whole, lengthen them, give them an attention that fits, build small ones."""
