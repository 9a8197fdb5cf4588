"""The policy of ODPP (Zou et al. 2020)."""
