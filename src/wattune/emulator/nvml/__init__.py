"""The C source of the emulated library, as data of the package."""
