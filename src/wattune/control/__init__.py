"""The live loop: read the GPUs, let a controller decide, apply what it wants; agreement between ranks."""
