"""From text sources to packed blocks with noun chains."""
