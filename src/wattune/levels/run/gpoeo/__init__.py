"""The policy of GPOEO (Wang et al. 2022)."""
