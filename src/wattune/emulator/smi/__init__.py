"""A stand-in for nvidia-smi over nvidia-ml-py, for programs that call it or read its CSV."""
