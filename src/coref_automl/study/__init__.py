"""A study: methods x lengths x seeds from one base at equal tokens, judged, reported and archived by one resumable command."""
