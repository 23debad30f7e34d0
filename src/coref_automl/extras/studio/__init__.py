"""The studio: a local web page over finished and running work. It reads the given folders and never writes into them."""
