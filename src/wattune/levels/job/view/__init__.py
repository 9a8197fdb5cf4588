"""What people see of a recurring job: pages, charts, terminal."""
