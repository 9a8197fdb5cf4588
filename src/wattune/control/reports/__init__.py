"""Reports of a training program while it runs: steps and metrics, from a file or its output."""
