"""`wattune bench reliability`: what fails when processes, signals and stores fail."""
