"""Programs of the user: how they are started, watched, relayed, signalled and stopped."""
