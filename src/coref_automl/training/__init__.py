"""Training: objectives on packed blocks, checkpoints each half epoch, safe to interrupt."""
