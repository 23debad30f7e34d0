"""Statistics: intervals, paired tests, resampling, closed forms, verdicts about methods; numpy only, pure functions."""
