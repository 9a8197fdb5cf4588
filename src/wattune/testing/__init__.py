"""Contract tests that a back-end must pass, for ours and for those written elsewhere."""
