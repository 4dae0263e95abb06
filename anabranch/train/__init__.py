"""Training: optimizers, schedules, checkpoints, hooks and sessions that recover."""
