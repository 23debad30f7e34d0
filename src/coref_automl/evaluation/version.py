"""The version of everything that decides a score: windows, matching, candidates, ranks. Two versions never meet."""

SCORER = "1"
