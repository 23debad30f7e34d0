"""Pages, tables and charts about results. Reads records of the rooms below."""
