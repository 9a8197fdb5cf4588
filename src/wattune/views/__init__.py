"""What people look at, as pure functions of histories and traces."""
