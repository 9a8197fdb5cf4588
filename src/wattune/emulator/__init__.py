"""The simulated GPU as a drop-in NVML library, and the launcher that puts a command under it."""
