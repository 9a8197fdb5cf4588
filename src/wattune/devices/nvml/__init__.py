"""NVIDIA GPUs through NVML. Only this folder imports pynvml."""
