"""What a power trace says: periods that repeat, and changes; pure."""
