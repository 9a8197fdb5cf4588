"""The pipeline level: the frontier of a training pipeline, and plans for its GPUs."""
