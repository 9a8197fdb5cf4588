"""Contract tests that a back-end or a policy must pass, for ours and for those written elsewhere."""
