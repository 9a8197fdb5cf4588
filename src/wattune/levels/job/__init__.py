"""The job level: batch size and power limit of training jobs that run again and again."""
