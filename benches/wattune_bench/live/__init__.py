"""`wattune bench live`: one PyTorch program, tuned live in several ways, judged by the simulated GPU's own joules."""
