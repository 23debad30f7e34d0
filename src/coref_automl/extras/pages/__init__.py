"""Pages: reports as HTML and Markdown, and charts."""
