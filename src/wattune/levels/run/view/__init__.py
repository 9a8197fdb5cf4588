"""What people see of a tuned run: pages, charts, terminal."""
