"""The folder that `process.step_file` puts on the PYTHONPATH of a program."""
