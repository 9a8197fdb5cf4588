"""The simulated GPU as a drop-in NVML library, and the launcher that runs a command with it."""
