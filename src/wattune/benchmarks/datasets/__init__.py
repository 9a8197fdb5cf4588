"""Readers of public measurements, each for one form of file. None of the files is part of wattune."""
