"""What a network asks of a GPU: shapes and batch size in, phases out."""
