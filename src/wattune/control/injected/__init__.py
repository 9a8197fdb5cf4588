"""The folder that `control.step_file` puts on the PYTHONPATH of a program."""
