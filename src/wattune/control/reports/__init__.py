"""What a training program reports while it runs: steps and metrics, from a file, its output or HTTP."""
